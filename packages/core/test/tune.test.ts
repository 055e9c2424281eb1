import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeEach, describe, expect, it, vi } from "vitest";
import type { BackendContext } from "../src/backend.js";
import { openEngineIn } from "../src/open-engine.js";
import { cacheDirectory, deviceKey, TuneStore } from "../src/tune-store.js";
import { discreteBackend, type Log } from "./discrete-device.js";
import { compiled } from "./native/support.js";
import { random, tensor, worldOf } from "./support.js";

const next = random(5);
const problem = (s: number, more: object = {}) => {
  const make = () => tensor([1, s, 2, 8], next, "f16");
  return { q: make(), k: make(), v: make(), ...more };
};

const discrete = (log = nothing()) => openEngineIn(worldOf({ discrete: discreteBackend(log) }));

const home = mkdtempSync(join(tmpdir(), "tessera-tune-"));
afterAll(() => rmSync(home, { recursive: true, force: true }));
let folder: string;
let warnings: string[];
beforeEach(() => {
  folder = mkdtempSync(join(home, "cache-"));
  vi.stubEnv("TESSERA_CACHE_DIR", folder);
  warnings = [];
  vi.spyOn(process, "emitWarning").mockImplementation((warning) => void warnings.push(String(warning)));
});

const files = () =>
  readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".json"))
    .map((name) => join(folder, name));
const nothing = (): Log => ({ calls: [], attentions: [] });

describe("what was tuned", () => {
  it("is there for the next engine, and explain says so", async () => {
    using engine = await discrete();
    expect(engine.explain(problem(20))).toMatchObject({ kernel: "fast", tuned: false });
    const table = await engine.tune(problem(20));
    expect(table.filter(({ isDefault }) => isDefault)).toMatchObject([{ kernel: "fast", numSplits: 0 }]);
    const { kernel, numSplits } = table[0]!;
    expect(engine.explain(problem(20))).toMatchObject({ kernel, tuned: true });

    const log = nothing();
    using later = await discrete(log);
    expect(later.explain(problem(20))).toMatchObject({ kernel, tuned: true });
    await later.attention(problem(20));
    expect(log.attentions.at(-1)).toMatchObject({ kernel, numSplits });
    // The class of 17 to 32 rows, and no other; and what is forced stays forced.
    expect(later.explain(problem(32)).tuned).toBe(true);
    expect(later.explain(problem(33)).tuned).toBe(false);
    expect(later.explain(problem(20, { causal: true })).tuned).toBe(false);
    expect(later.explain(problem(20, { kernel: "reference" }))).toMatchObject({ kernel: "reference", tuned: false });
    expect(warnings).toEqual([]);

    later.clearTuning();
    expect(later.explain(problem(20)).tuned).toBe(false);
    expect(files()).toEqual([]);
  });

  it("leaves out what runs only by name, unless that is asked for", async () => {
    using engine = await discrete();
    const names = (await engine.tune(problem(20))).map(({ kernel }) => kernel);
    expect(names).toContain("reference");
    expect(names).not.toContain("shown");
    const named = await engine.tune(problem(20, { kernel: "shown" }));
    expect(new Set(named.map(({ kernel }) => kernel))).toEqual(new Set(["shown"]));
    expect(engine.explain(problem(20)).kernel).not.toBe("shown");
  });

  it("takes nothing from a file that is damaged, of another version or of a kernel that isn't there, and says so", async () => {
    using engine = await discrete();
    await engine.tune(problem(20));
    const [file] = files();
    const entry = JSON.parse(readFileSync(file!, "utf8"));
    expect(entry).toMatchObject({ format: "tessera-tuning", version: 1, milliseconds: expect.any(Number) });
    const bad = ["{", "null", "[]", JSON.stringify({ ...entry, version: 2 }), JSON.stringify({ ...entry, kernel: 7 })];
    for (const text of [...bad, JSON.stringify({ ...entry, numSplits: -1 }), ""]) {
      warnings.length = 0;
      writeFileSync(file!, text);
      using later = await discrete();
      expect(later.explain(problem(20)).tuned).toBe(false);
      expect(warnings).toEqual([expect.stringContaining(file!)]);
    }
    writeFileSync(file!, JSON.stringify({ ...entry, kernel: "never" }));
    using other = await discrete();
    expect(other.explain(problem(20)).tuned).toBe(false);
    // Tuning again mends it.
    await other.tune(problem(20));
    using mended = await discrete();
    expect(mended.explain(problem(20)).tuned).toBe(true);
  });

  it("stays in memory where nothing can be written", async () => {
    const inTheWay = join(folder, "file");
    writeFileSync(inTheWay, "");
    vi.stubEnv("TESSERA_CACHE_DIR", inTheWay);
    using engine = await discrete();
    await engine.tune(problem(20));
    expect(engine.explain(problem(20)).tuned).toBe(true);
    expect(warnings).toEqual([expect.stringMatching(/this process only/)]);
  });

  it("yields where the variant can't do this very call", async () => {
    const log = nothing();
    using engine = await discrete(log);
    await engine.tune(problem(20));
    const prototype = Object.getPrototypeOf(discreteBackend().open({ device: 0 })) as BackendContext;
    const { supports } = prototype;
    const refuses = vi.spyOn(prototype, "supports").mockImplementation(function (this: BackendContext, desc) {
      if (desc.kernel === undefined) return supports.call(this, desc);
      return { supported: false, code: "unsupported", reason: "not this one" };
    });
    try {
      expect(engine.explain(problem(20)).tuned).toBe(false);
      await engine.attention(problem(20));
      expect(log.attentions.at(-1)!.kernel).toBeUndefined();
    } finally {
      refuses.mockRestore();
    }
  });

  it("of processes that write at the same time, nothing is lost or torn", async () => {
    const store = pathToFileURL(join(compiled(), "tune-store.js")).href;
    const writers = [0, 1, 2, 3].map((writer) => {
      const source = `
        import { TuneStore } from ${JSON.stringify(store)};
        const store = new TuneStore("a device");
        for (let i = 0; i < 200; i++) store.save(i % 2 ? "both " + i : "mine ${writer} " + i, { kernel: "k${writer}", numSplits: i }, 1);`;
      return spawn(process.execPath, ["--input-type=module", "-e", source], { stdio: "inherit" });
    });
    const reader = new TuneStore("a device");
    let ended = 0;
    for (const writer of writers) void once(writer, "close").then(() => ended++);
    while (ended < writers.length) {
      reader.load();
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    expect(warnings).toEqual([]);
    const known = reader.load();
    expect(known.size).toBe(4 * 100 + 100);
    expect(known.get("mine 2 4")).toMatchObject({ kernel: "k2", numSplits: 4 });
    expect(new TuneStore("another").load().size).toBe(0);
    expect(readdirSync(reader.folder).filter((name) => name.startsWith("."))).toEqual([]);
  });
});

describe("where it is kept", () => {
  it("is the user's cache directory", () => {
    expect(cacheDirectory({ TESSERA_CACHE_DIR: "/a", XDG_CACHE_HOME: "/b" })).toBe("/a");
    expect(cacheDirectory({ XDG_CACHE_HOME: "/b" })).toBe("/b/tessera");
    expect(cacheDirectory({ XDG_CACHE_HOME: "relative", TESSERA_CACHE_DIR: "" })).toMatch(/\/\.cache\/tessera$/);
  });
  it("differs by device, back end, version and threads", () => {
    const [device] = discreteBackend().probe().devices;
    const cpu = { ...device!, caps: { ...device!.caps, async: false } };
    const keys = [
      deviceKey("cpu", "1", cpu, 1),
      deviceKey("cpu", "1", cpu, 2),
      deviceKey("cpu", "2", cpu, 2),
      deviceKey("hip", "2", cpu, 2),
      deviceKey("hip", "2", { ...cpu, arch: "x" }, 2),
      deviceKey("hip", "2", device!, 2),
    ];
    expect(new Set(keys).size).toBe(keys.length);
    mkdirSync(folder, { recursive: true });
    expect(new TuneStore(keys[0]!).folder).not.toBe(new TuneStore(keys[1]!).folder);
  });
});
