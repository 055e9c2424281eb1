/** How processes and workers end while native code works for them. */
import { describe, expect, it } from "vitest";
import { mock, runScript } from "./support.js";

const sync = mock();
const queues = mock("-DMOCK_ASYNC");

describe.each([
  ["computing in the call", sync],
  ["with queues", queues],
])("a process ends in the middle of work, device %s", (kind, library) => {
  // A device with queues can't be stopped; the mock's own thread ends with the process.
  const order = kind === "with queues" ? "sleep:200" : "sleep:30000";

  it("process.exit keeps its code, and doesn't wait for the work", async () => {
    const end = await runScript("ends", [library, "exit", order]);
    expect(end).toMatchObject({ code: 42, signal: null, stderr: "" });
    expect(end.milliseconds).toBeLessThan(15_000);
  });
  it("an uncaught exception is told, with code 1", async () => {
    const end = await runScript("ends", [library, "uncaught", order]);
    expect(end).toMatchObject({ code: 1, signal: null });
    expect(end.stderr).toContain("uncaught on purpose");
    expect(end.milliseconds).toBeLessThan(15_000);
  });
  it("an unhandled rejection too", async () => {
    expect(await runScript("ends", [library, "reject", order])).toMatchObject({ code: 1, signal: null });
  });
  it("a natural end waits for the work", async () => {
    const end = await runScript("ends", [library, "natural", "sleep:80"]);
    expect(end).toMatchObject({ code: 0, stdout: "done\n", stderr: "" });
  });
  it("dispose in the middle, then a natural end", async () => {
    expect(await runScript("ends", [library, "dispose", "sleep:80"])).toMatchObject({ code: 0, stderr: "" });
  });
});

describe("a back end that doesn't look at its cancel flag", () => {
  it("is waited for: its library is not taken apart under it", async () => {
    expect(await runScript("ends", [sync, "exit", "stubborn:700"])).toMatchObject({ code: 42, signal: null });
  });
});

describe("worker threads", () => {
  it.each([
    [50, "sync", sync],
    [20, "queues", queues],
  ])("%d workers (%s) load, run and end in the middle of it", async (count, _, library) => {
    const end = await runScript("workers", [library, String(count), library === sync ? "sleep:20000" : "sleep:20"]);
    expect(end).toMatchObject({ code: 0, signal: null, stderr: "" });
    expect(end.stdout).toMatch(/^contexts=1 buffers=0 graphs=0 events=0 /);
  });
  it.each([
    ["sync", sync],
    ["queues", queues],
  ])("workers (%s) that are terminated between calls", async (_, library) => {
    expect(await runScript("churn", [library, "24"])).toMatchObject({ code: 0, stdout: "done\n", stderr: "" });
  });
  it("process.exit of the main thread while workers compute", async () => {
    const end = await runScript("exit-with-workers", [sync, "sleep:30000"]);
    expect(end).toMatchObject({ code: 42, signal: null, stderr: "" });
    expect(end.milliseconds).toBeLessThan(15_000);
  });
});

describe("what was forgotten", () => {
  it.each([
    ["sync", sync],
    ["queues", queues],
  ])("host arrays (%s) stay while native code uses them, no longer", async (_, library) => {
    const end = await runScript("kept", [library], ["--expose-gc"]);
    expect(end).toMatchObject({ code: 0, stdout: "kept\nlet go\n", stderr: "" });
  });
  it("is freed by the garbage collector; what runs is not", async () => {
    const end = await runScript("forgotten", [sync], ["--expose-gc"]);
    expect(end).toMatchObject({ code: 0, stderr: "" });
    const lines = end.stdout.trim().split("\n");
    expect(lines[0]).toBe("survived");
    expect(lines[1]).toMatch(/contexts=11 buffers=110/);
    expect(lines[2]).toMatch(/contexts=1 buffers=0/);
  });
});
