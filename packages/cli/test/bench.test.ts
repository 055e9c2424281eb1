import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseResult } from "@tessera/bench";
import { afterEach, describe, expect, it, vi } from "vitest";
import { put, scratch, tessera } from "./helpers.js";
import { shimIn } from "./shim.js";

const folder = scratch();
const shim = shimIn(folder);
const bin = fileURLToPath(new URL("../bin/tessera.js", import.meta.url));
const small = ["--backend", "cpu", "--filter", "77²|enqueue, no launch", "--repeats", "20", "--rotate", "4"];
const resultIn = (path: string) => parseResult(readFileSync(path, "utf8"), path);
afterEach(() => vi.unstubAllEnvs());

describe("tessera bench", () => {
  it("measures, tells and writes", async () => {
    const file = join(folder, "quick.json");
    const { code, out, err } = await tessera("bench", ...small, "--json", file, "--note", "here");
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out).toMatch(/^cpu:0: .+ threads?\)$/m);
    expect(out).toMatch(/^ {2}copy +[\d.]+ GB\/s/m);
    expect(out).toMatch(/^quick +B1 77² H8 D64 full f32 +\S+ +[\d.]+ [µm]s +.* ok$/m);
    expect(resultIn(file)).toMatchObject({ state: "complete", note: "here" });

    const json = await tessera("bench", ...small, "--json");
    expect(parseResult(json.out, "stdout").measurements).toHaveLength(2);
  });

  it("says which suites there are", async () => {
    const { code, out } = await tessera("bench", "--list");
    expect(code).toBe(0);
    expect(out.split("\n").filter((line) => line !== "")).toHaveLength(10);
    expect(out).toMatch(/^ladder {3,}the article's steps/m);
  });

  it.each<[string[], RegExp, number]>([
    [["--suite", "quik"], /--suite is quik; allowed: quick, tutorial/, 2],
    [["--backend", "cuba"], /--backend is cuba; allowed: cuda, hip/, 2],
    [["--backend", "cpu:x"], /--backend is cpu:x/, 2],
    [["--backend", "cpu", "--filter", "no such case"], /no case of quick matches/, 2],
    [["--filter", "("], /regular expression/i, 2],
    [["--backend", "cpu", "--library", "x.so"], /give one of them/, 2],
    [["--json", "/no/such/folder/x.json"], /--json: can't write|no such/i, 2],
    [["--backend", "hip"], /hip/, 3],
    [["--suite", "ladder", "--backend", "cpu"], /the suite ladder needs the back end cuda or hip/, 3],
    [["--backend", "cpu", "--backend", "webgpu"], /webgpu/, 3],
  ])("%j is refused before anything is measured", async (args, message, code) => {
    const said = await tessera("bench", ...args);
    expect(said.code).toBe(code);
    expect(said.err).toMatch(message);
    expect(said.out).toBe("");
  });

  it("a device that breaks on the way: exit 3, and what was measured is kept", async (ctx) => {
    const file = join(folder, "broken.json");
    const library = shim(ctx, "BREAKS");
    const { code, err } = await tessera("bench", "--library", library, "--json", file, "--repeats", "20");
    expect(code).toBe(3);
    expect(err).toMatch(/broke: device-error: the device has fallen off the bus/);
    const result = resultIn(file);
    expect(result).toMatchObject({ state: "device-error", devices: [{ state: "device-error" }] });
    expect(result.measurements.length).toBeGreaterThan(0);
  });

  it("a wrong output: exit 1, and it says so", async (ctx) => {
    const args = ["--filter", "512² H32:8 D128 causal f32", "--repeats", "3"];
    const { code, out } = await tessera("bench", "--library", shim(ctx, "WRONG"), ...args);
    // The shim spoils one element of the first row, which is one of those that are looked at.
    expect(out).toMatch(/ (WRONG|ok)$/m);
    expect(code).toBe(out.includes("WRONG") ? 1 : 0);
  });

  it("Ctrl-C ends it with a valid part, exit 130", async () => {
    const file = join(folder, "part.json");
    const args = [bin, "bench", "--backend", "cpu", "--suite", "prefill", "--repeats", "40", "--json", file];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
    setTimeout(() => child.kill("SIGINT"), 4000);
    const [code] = await once(child, "close");
    expect(code).toBe(130);
    const result = resultIn(file);
    expect(result.state).toBe("interrupted");
    expect(readdirSync(folder).filter((name) => name.endsWith(".tmp"))).toEqual([]);
  });

  it("Ctrl-C while it profiles keeps all that was measured, exit 130", async (ctx) => {
    const [file, began, ncu] = [join(folder, "profiled.json"), join(folder, "began"), join(folder, "ncu")];
    writeFileSync(ncu, `#!/bin/sh\ntouch ${began}\nexec sleep 100\n`);
    chmodSync(ncu, 0o755);
    const library = shim(ctx, "CALLED_CUDA"); // others aren't profiled
    const args = ["bench", "--library", library, ...small.slice(2), "--profile", "--json", file];
    const { code } = await interrupted(args, { TESSERA_NCU: ncu }, () => existsSync(began));
    expect(code).toBe(130);
    const result = resultIn(file);
    expect(result.measurements).toHaveLength(2);
    expect(result.skipped).toContainEqual(expect.objectContaining({ suite: "profile", reason: "interrupted" }));
  });
});

/** Runs the command, and presses Ctrl-C once it has come so far. */
async function interrupted(args: string[], env: Record<string, string>, soFar: () => boolean) {
  const child = spawn(process.execPath, [bin, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, ...env },
  });
  let [out, err] = ["", ""];
  child.stdout.on("data", (data) => {
    out += data;
  });
  child.stderr.on("data", (data) => {
    err += data;
  });
  const closed = once(child, "close");
  await expect.poll(() => soFar() || child.exitCode !== null, { timeout: 60_000, interval: 20 }).toBe(true);
  child.kill("SIGINT");
  const [code] = await closed;
  return { code, out, err };
}

describe("tessera report", () => {
  it("makes one page and a CSV of several results", async () => {
    const files = [join(folder, "r1.json"), join(folder, "r2.json")];
    for (const file of files) await tessera("bench", ...small, "--json", file);
    const [page, csv] = [join(folder, "report.html"), join(folder, "report.csv")];
    const { code, out, err } = await tessera("report", ...files, "-o", page, "--csv", csv);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out).toContain(`written  ${page}`);
    expect(readFileSync(page, "utf8")).toMatch(/^<!doctype html>[\s\S]+B1 77²[\s\S]+<\/html>\n$/);
    expect(readFileSync(csv, "utf8").trim().split("\n")).toHaveLength(5);
    const json = JSON.parse((await tessera("report", files[0]!, "-o", page, "--json")).out);
    expect(json).toEqual({ files: [files[0]], measurements: 2, written: [page] });
  });

  it("names and refuses what it can't use: exit 2, and writes nothing", async () => {
    const good = join(folder, "r1.json");
    const text = readFileSync(good, "utf8");
    const page = join(folder, "none.html");
    const bad = [
      put(folder, "half.json", Buffer.from(text.slice(0, 700))),
      put(folder, "v2.json", Buffer.from(text.replace('"version": 1', '"version": 2'))),
      put(folder, "nan.json", Buffer.from(text.replace(/"median": [\d.]+/, '"median": NaN'))),
      join(folder, "absent.json"),
      folder,
    ];
    for (const file of bad) {
      const { code, err } = await tessera("report", good, file, "-o", page);
      expect(code).toBe(2);
      expect(err).toContain(`tessera: ${file}: `);
    }
    expect(readdirSync(folder)).not.toContain("none.html");
  });
});

describe("tessera tune", () => {
  it("Ctrl-C keeps what was tuned until then, exit 130", async () => {
    const cache = join(folder, "interrupted");
    const kept = () =>
      existsSync(cache) && readdirSync(cache, { recursive: true }).some((n) => `${n}`.endsWith(".json"));
    const args = ["tune", "--backend", "cpu", "--suite", "quick", "--json"];
    const { code, out, err } = await interrupted(args, { TESSERA_CACHE_DIR: cache }, kept);
    expect({ code, err }).toEqual({ code: 130, err: "" });
    const { cases } = JSON.parse(out);
    expect(cases.length).toBeGreaterThan(0);
    vi.stubEnv("TESSERA_CACHE_DIR", cache);
    const { case: name, best } = cases[0];
    const first = ["--backend", "cpu", "--repeats", "20", "--rotate", "4", "--json", "--filter"];
    const json = await tessera("bench", ...first, `^quick: ${name.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`);
    expect(parseResult(json.out, "stdout").measurements[0]).toMatchObject({ tuned: true, kernel: best.kernel });
  });

  it("keeps what is fastest, and forgets it again", async () => {
    vi.stubEnv("TESSERA_CACHE_DIR", join(folder, "cache"));
    const which = ["--backend", "cpu", "--filter", "77²"];
    const { code, out } = await tessera("tune", ...which);
    expect(code).toBe(0);
    expect(out).toMatch(/^cpu:0 +quick: B1 77² H8 D64 full f32 +[\d.]+ ms +\S+ +[\d.]+ ms +\S.* \d+ %$/m);
    const json = await tessera("bench", ...small, "--json");
    const [first] = parseResult(json.out, "stdout").measurements;
    expect(first).toMatchObject({ tuned: true });
    const { cases } = JSON.parse((await tessera("tune", ...which, "--json")).out);
    expect(cases[0].variants.length).toBeGreaterThan(1);

    expect(await tessera("tune", "--backend", "cpu", "--clear")).toMatchObject({ code: 0, out: "forgotten\n" });
    const [again] = parseResult((await tessera("bench", ...small, "--json")).out, "stdout").measurements;
    expect(again).toMatchObject({ tuned: false });
  });

  it("a device that breaks on the way: exit 3, and what was tuned is shown", async (ctx) => {
    vi.stubEnv("TESSERA_CACHE_DIR", join(folder, "cache-of-broken"));
    const { code, out, err } = await tessera(
      "tune",
      "--library",
      shim(ctx, "BREAKS_LATER"),
      "--filter",
      "77²|1 × 4096",
    );
    expect({ code, err }).toMatchObject({ code: 3, err: expect.stringContaining("the device has fallen off the bus") });
    expect(out).toMatch(/^cpu:0 +quick: B1 77² H8 D64 full f32 .* %$/m);
  });
});
