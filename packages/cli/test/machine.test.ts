import { afterEach, describe, expect, it, vi } from "vitest";
import { describe as describeDevices } from "../src/commands/devices.js";
import { environment } from "../src/doctor/environment.js";
import { describeDoctor, type Findings, jsonOf } from "../src/doctor/findings.js";
import { describeSystem } from "../src/doctor/system.js";
import { kjv, tessera } from "./helpers.js";

afterEach(() => vi.unstubAllEnvs());

async function cpuUsable(): Promise<boolean> {
  const { chosen } = JSON.parse((await tessera("devices", "--json")).out);
  return chosen.backend === "cpu";
}

const backends = ["cuda", "hip", "webgpu", "cpu", "reference"];

describe("tessera devices", () => {
  it("lists every back end, marks one device, and gives a cause and a fix for what can't be used", async () => {
    const { code, out, err } = await tessera("devices");
    expect({ code, err }).toEqual({ code: 0, err: "" });
    for (const name of backends) expect(out).toMatch(new RegExp(`^.? *${name} `, "m"));
    expect(out.match(/^\*/gm)?.length).toBe(1);
    expect(out).toMatch(/^ +reference +0 .* usable$/m);
    if (/package-missing/.test(out)) expect(out).toMatch(/fix: .*(npm install @tessera\/|build-native)/);
  });

  it("--json is one object, with the same choice", async () => {
    const { code, out, err } = await tessera("devices", "--json");
    expect({ code, err }).toEqual({ code: 0, err: "" });
    const report = JSON.parse(out);
    expect(report.backends.map((b: { backend: string }) => b.backend)).toEqual(backends);
    expect(backends).toContain(report.chosen.backend);
    const human = (await tessera("devices")).out;
    expect(human).toMatch(new RegExp(`^\\* +${report.chosen.backend} +${report.chosen.device} `, "m"));
  });

  it("exit 3 where TESSERA_BACKEND names what can't be used", async () => {
    vi.stubEnv("TESSERA_BACKEND", "reference");
    expect(JSON.parse((await tessera("devices", "--json")).out).chosen.backend).toBe("reference");
    vi.stubEnv("TESSERA_BACKEND", "webgpu");
    const { code, out } = await tessera("devices");
    if (!/webgpu .* usable$/m.test(out)) {
      expect(code).toBe(3);
      expect(out).toContain("No device can be used as asked");
    }
  });

  it("TESSERA_BACKEND that is no back end is wrong usage, in the words of attend", async () => {
    vi.stubEnv("TESSERA_BACKEND", "nope");
    const attend = await tessera("attend", kjv, "--prefix", "layer0.");
    expect(attend.err).toMatch(/TESSERA_BACKEND is "nope"; allowed: "auto", .*"reference"/);
    expect(await tessera("devices")).toEqual({ code: 2, out: "", err: attend.err });
    const { code, out } = await tessera("devices", "--json");
    expect({ code, error: JSON.parse(out).error.code }).toEqual({ code: 2, error: "invalid-argument" });
  });

  it("shows a device that is there and can't be used, and why", () => {
    const report = {
      backend: "cuda",
      state: "usable" as const,
      reason: "",
      fix: "",
      attempts: [],
      devices: [
        {
          index: 1,
          name: "Old GPU",
          arch: "sm_52",
          id: "",
          memoryBytes: 4 << 20,
          computeUnits: 1,
          sharedBytes: 0,
          state: "arch-not-in-build" as const,
          reason: "found sm_52, built for sm_80 and up",
          fix: "use a newer device",
          caps: { async: true, hostMemory: false, graphs: true },
        },
      ],
    };
    const text = describeDevices([report], undefined);
    expect(text).toMatch(/^ +cuda +1 +Old GPU +sm_52 +4\.0 MiB +arch-not-in-build$/m);
    expect(text).toContain("cuda 1: found sm_52, built for sm_80 and up\n  fix: use a newer device\n");
  });
});

describe("tessera doctor", () => {
  it("names system, packages, back ends and environment, and ends with a verdict", async () => {
    vi.stubEnv("CUDA_VISIBLE_DEVICES", "1,0");
    vi.stubEnv("TESSERA_THREADS", "1");
    const { code, out, err } = await tessera("doctor");
    expect({ code, err }).toEqual({ code: 0, err: "" });
    for (const title of ["System", "Packages", "Back ends", "Environment"])
      expect(out).toMatch(new RegExp(`^${title}$`, "m"));
    expect(out).toMatch(/^ {2}node +v\d+/m);
    expect(out).toMatch(/^ {2}libc +(glibc \d|musl|the system's)/m);
    expect(out).toMatch(/^ {2}@tessera\/core +\d+\.\d+\.\d+ +\//m);
    expect(out).toMatch(/^ {2}@tessera\/cli +\d+\.\d+\.\d+ +\//m);
    expect(out).toMatch(/^ {2}@tessera\/bench +\d+\.\d+\.\d+ +\//m);
    expect(out).toMatch(/^ {2}CUDA_VISIBLE_DEVICES +1,0/m);
    expect(out).toMatch(/^ {2}TESSERA_THREADS +1$/m);
    expect(out.trimEnd().split("\n").at(-1)).toMatch(/^Verdict: /);
  });

  it.each([
    ["TESSERA_BACKEND", "CPU", /"auto", .*"reference"/],
    ["TESSERA_THREADS", "abc", /a number from 1 to \d+/],
    ["TESSERA_CPU_ISA", "foo", /one of .*portable/],
    ["TESSERA_PROBE_TIMEOUT_MS", "abc", /milliseconds from 1 to \d+/],
  ])("%s=%s: names the variable, its value and what is allowed, exit 1", async (name, value, allowed) => {
    if (/THREADS|ISA/.test(name) && !(await cpuUsable())) return;
    vi.stubEnv(name, value);
    const { code, out } = await tessera("doctor");
    expect(code).toBe(1);
    const row = out.split("\n").find((line) => line.startsWith(`  ${name} `));
    expect(row).toMatch(new RegExp(` ${value} .*not allowed`));
    expect(row).toMatch(allowed);
    const verdict = out.slice(out.indexOf("Verdict: "));
    expect(verdict).toContain(`${name}`);
    expect(verdict).toContain(value);
    expect(verdict).toMatch(allowed);
    expect(verdict).not.toMatch(/good|fixes above/);
    const json = await tessera("doctor", "--json");
    expect(json.code).toBe(1);
    const findings = JSON.parse(json.out);
    expect(findings.chosen).toBe(null);
    expect(findings.environment).toContainEqual(
      expect.objectContaining({ name, value, problem: expect.stringMatching(allowed) }),
    );
  });

  it("names several at once", async () => {
    if (!(await cpuUsable())) return;
    vi.stubEnv("TESSERA_BACKEND", "CPU");
    vi.stubEnv("TESSERA_THREADS", "abc");
    const { out } = await tessera("doctor");
    expect(out).toMatch(/Verdict: .*TESSERA_BACKEND is "CPU"[\s\S]*TESSERA_THREADS: is "abc"/);
  });

  it("a variable of a back end that isn't used harms nothing", async () => {
    vi.stubEnv("TESSERA_BACKEND", "reference");
    vi.stubEnv("TESSERA_THREADS", "abc");
    expect((await tessera("doctor")).code).toBe(0);
  });

  it("--json holds all of it", async () => {
    const findings = JSON.parse((await tessera("doctor", "--json")).out);
    expect(Object.keys(findings)).toEqual([
      "system",
      "packages",
      "addon",
      "backends",
      "environment",
      "shadows",
      "chosen",
    ]);
    expect(findings.system.cores).toBeGreaterThan(0);
  });

  it("puts causes and fixes in order, and judges", () => {
    const findings: Findings = {
      system: describeSystem(),
      packages: [],
      addon: { path: "/a/tessera.node", state: "loaded", fix: "" },
      environment: environment({ TESSERA_BACKEND: "cpu", HOME: "/root" }),
      chosen: { backend: "reference", device: 0 },
      backends: [
        {
          backend: "cpu",
          state: "package-missing",
          reason: "not there",
          fix: "first thing; or second thing",
          devices: [],
          attempts: [{ from: "package", at: "@tessera/cpu", result: "is not installed" }],
        },
      ],
    };
    const text = describeDoctor(findings);
    expect(text).toMatch(
      /cpu: package-missing\n {4}cause {4}the package @tessera\/cpu is not installed\n {4}looked {3}package: @tessera\/cpu\n {4}fix 1 {4}first thing\n {4}fix 2 {4}second thing/,
    );
    expect(text).toMatch(/TESSERA_BACKEND +cpu/);
    expect(text).not.toContain("HOME");
    expect(text).toMatch(/Verdict: .*slowly.*only .*The cpu fixes above/);
    expect(describeDoctor({ ...findings, chosen: null })).toMatch(/Verdict: nothing can run/);
    vi.stubEnv("TESSERA_BACKEND", "cpu");
    expect(describeDoctor({ ...findings, chosen: null })).toMatch(/as asked \(TESSERA_BACKEND=cpu\): first thing$/m);
  });

  it("judges the reference, where it was asked for and another could be used, as such", async () => {
    if (!(await cpuUsable())) return;
    vi.stubEnv("TESSERA_BACKEND", "reference");
    const { out } = await tessera("doctor");
    expect(out).toMatch(/Verdict: .*slowly: TESSERA_BACKEND asks for .*Without it cpu is used\.$/m);
    expect(out).not.toContain("fixes above");
  });

  it("tells of a GPU whose driver is loaded and that nothing runs on", () => {
    const missing = { state: "package-missing" as const, reason: "", devices: [], attempts: [] };
    const device = {
      index: 0,
      name: "A CPU",
      arch: "x86-64",
      id: "",
      memoryBytes: 0,
      computeUnits: 1,
      sharedBytes: 0,
      state: "usable" as const,
      reason: "",
      fix: "",
      caps: { async: false, hostMemory: true, graphs: false },
    };
    const findings: Findings = {
      system: { ...describeSystem(), gpuDrivers: ["NVIDIA 580.1"] },
      packages: [],
      addon: { path: "/a/tessera.node", state: "loaded", fix: "" },
      environment: [],
      chosen: { backend: "cpu", device: 0 },
      backends: [
        { ...missing, backend: "cuda", fix: "run `npm install @tessera/cuda`; or another" },
        { ...missing, backend: "hip", fix: "run `npm install @tessera/hip`" },
        { ...missing, state: "usable", backend: "cpu", fix: "", devices: [device] },
      ],
    };
    const verdict = (some: Partial<Findings>) => describeDoctor({ ...findings, ...some }).split("Verdict: ")[1];
    expect(verdict({})).toBe(
      "good. Attention runs natively on cpu, A CPU.\n" +
        "  But the driver NVIDIA 580.1 is loaded, and cuda can't be used (package-missing): run `npm install @tessera/cuda`\n",
    );
    expect(verdict({ chosen: { backend: "cuda", device: 0 } })).not.toContain("But");

    // A device's fixes are numbered like a back end's, and what isn't of core's version is told of.
    const other = {
      ...device,
      state: "arch-not-in-build" as const,
      reason: "found sm_103",
      fix: "build it; or another",
    };
    const core = { name: "@tessera/core", version: "1.0.0", folder: "/core" };
    const report = { ...missing, state: "usable" as const, backend: "cuda" as const, fix: "", version: "0.9.0" };
    const mixed = { ...findings, packages: [core], backends: [{ ...report, devices: [other] }] };
    const text = describeDoctor(mixed);
    expect(text).toContain("      cause  found sm_103\n      fix 1  build it\n      fix 2  another\n");
    expect(text).toContain("    note     is version 0.9.0, @tessera/core is 1.0.0: only what was published together");
    expect(jsonOf(mixed)).toMatchObject({
      backends: [{ note: /^is version 0\.9\.0/, devices: [{ fixes: ["build it", "another"] }] }].map((one) => ({
        ...one,
        note: expect.stringMatching(one.note),
      })),
    });
    expect(describeDoctor({ ...mixed, packages: [{ ...core, version: "0.9.0" }] })).not.toContain("    note  ");
    expect(verdict({ system: { ...findings.system, gpuDrivers: [] } })).not.toContain("But");
  });

  it("remarks on paths that lead nowhere and on variables that nothing reads", () => {
    const meaning = (env: NodeJS.ProcessEnv) => environment(env)[0]!.meaning;
    expect(meaning({ TESSERA_BACKEND_PATH: "/nonexistent:here:/" })).toBe(
      "looked at first, but /nonexistent does not exist; here is not an absolute path",
    );
    expect(meaning({ TESSERA_BACKEND_PATH: "/" })).toBe("");
    expect(meaning({ TESSERA_BACKND: "cuda" })).toMatch(/^nothing of Tessera's reads it; read are TESSERA_BACKEND, /);
    expect(meaning({ TESSERA_THREADS: "1" })).toBe("");
  });
});
