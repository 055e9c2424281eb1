import { afterEach, describe, expect, it } from "vitest";
import { backendNames } from "../../src/backends.js";
import { probe } from "../../src/probe.js";
import { mock, runScript } from "./support.js";

afterEach(() => {
  delete process.env.MOCK_PROBE;
  delete process.env.TESSERA_PROBE_TIMEOUT_MS;
});

async function probed(order?: string, timeoutMs?: number) {
  if (order !== undefined) process.env.MOCK_PROBE = order;
  const [report] = await probe({ library: mock(), timeoutMs, fresh: true });
  return report!;
}

describe("probe", () => {
  it("a back end that answers", async () => {
    const report = await probed();
    expect(report).toMatchObject({ backend: "mock", version: "1.2.3", library: mock(), state: "usable", reason: "" });
    expect(report.devices).toHaveLength(1);
    expect(report.devices[0]).toMatchObject({
      name: "mock device",
      arch: "mock",
      memoryBytes: 2 ** 30,
      state: "usable",
    });
    expect(report.devices[0]!.caps).toEqual({ async: false, hostMemory: true, graphs: true });
  });
  it("a reason and a fix from the back end", async () => {
    expect(await probed("driver-missing")).toMatchObject({
      state: "driver-missing",
      reason: "no mock driver",
      fix: "install the mock driver",
      devices: [],
    });
  });
  it("a text that fills its field to the end", async () => {
    expect((await probed("full")).reason).toBe("x".repeat(512));
  });
  it("a crash names the signal", async () => {
    const report = await probed("crash");
    expect(report).toMatchObject({ state: "crashed", devices: [] });
    expect(report.reason).toContain("SIGSEGV");
  });
  it("an exit in the middle names its code", async () => {
    expect((await probed("exit")).reason).toContain("exit code 7");
  });
  it("a hang is stopped, and names the limit", async () => {
    const started = performance.now();
    const report = await probed("hang", 700);
    expect(report.state).toBe("timed-out");
    expect(report.reason).toContain("within 700 ms");
    expect(performance.now() - started).toBeLessThan(10_000);
  });
  it("the limit comes from the environment too, and must be a number", async () => {
    process.env.TESSERA_PROBE_TIMEOUT_MS = "600";
    expect((await probed("hang")).reason).toContain("within 600 ms");
    process.env.TESSERA_PROBE_TIMEOUT_MS = "soon";
    await expect(probed()).rejects.toMatchObject({
      code: "invalid-argument",
      message: expect.stringContaining("TESSERA_PROBE_TIMEOUT_MS is soon"),
    });
  });
  it.each([
    ["-DMOCK_NO_ENTRY", "not-a-backend"],
    ["-DMOCK_ABI=7", "abi-mismatch"],
    ["-DMOCK_NEEDS_SYMBOL", "load-failed"],
  ])("%s is %s", async (flag, state) => {
    const [report] = await probe({ library: mock(flag) });
    expect(report).toMatchObject({ state });
    expect(report!.reason).not.toBe("");
    expect(report!.fix).not.toBe("");
  });
  it("a missing file", async () => {
    const [report] = await probe({ library: "/nowhere/x.so" });
    expect(report).toMatchObject({
      backend: "/nowhere/x.so",
      state: "load-failed",
      reason: "/nowhere/x.so: does not exist",
    });
  });
  it("all back ends in order; the reference is usable; a missing package says how to install it", async () => {
    const reports = await probe();
    expect(reports.map(({ backend }) => backend)).toEqual([...backendNames]);
    expect(reports.at(-1)).toMatchObject({ backend: "reference", state: "usable" });
    for (const report of reports) {
      if (report.state !== "package-missing") continue;
      expect(report.fix).toMatch(
        new RegExp(`npm install @tessera/${report.backend}@|build-native.mjs ${report.backend}`),
      );
      expect(report.reason).toContain(`@tessera/${report.backend}`);
    }
  });
  it("remembers, by environment; fresh asks again", async () => {
    const [first] = await probe({ library: mock() });
    expect((await probe({ library: mock() }))[0]).toBe(first);
    expect((await probe({ library: mock(), fresh: true }))[0]).not.toBe(first);
    process.env.CUDA_VISIBLE_DEVICES = "7";
    try {
      const [other] = await probe({ library: mock() });
      expect(other).not.toBe(first);
      expect((await probe({ library: mock() }))[0]).toBe(other);
    } finally {
      delete process.env.CUDA_VISIBLE_DEVICES;
    }
  });
  it("unknown names are refused", async () => {
    await expect(probe({ backends: ["opencl" as "cpu"] })).rejects.toMatchObject({ code: "invalid-argument" });
  });
  it("works in a worker thread", async () => {
    const end = await runScript("probe-in-worker", [mock()]);
    expect(end).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse(end.stdout)).toMatchObject({ backend: "mock", state: "usable" });
  });
});
