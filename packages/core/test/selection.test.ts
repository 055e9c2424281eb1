import { describe, expect, it } from "vitest";
import { openEngineIn } from "../src/open-engine.js";
import { referenceBackend } from "../src/reference/index.js";
import { discreteBackend } from "./discrete-device.js";
import { worldOf } from "./support.js";

describe("selection", () => {
  const usable = (name: string) => ({ ...discreteBackend(undefined, name), name });
  const missing = {
    state: "package-missing",
    reason: "@tessera/cuda is not installed",
    fix: "npm install @tessera/cuda",
  } as const;

  it("auto takes the first that works and says what it passed over", async () => {
    const world = worldOf({ cuda: missing, hip: usable("hip"), cpu: usable("cpu"), reference: referenceBackend });
    using engine = await openEngineIn(world);
    expect(engine.backend).toBe("hip");
    expect(engine.selection).toMatchObject({
      requested: "auto",
      requestedBy: "default",
      chosen: "hip",
      device: 0,
      reason: expect.stringMatching(/cuda: package-missing/),
      tried: [
        { backend: "cuda", ...missing },
        { backend: "hip", state: "usable", reason: "" },
      ],
    });
  });

  it("auto ends at the reference", async () => {
    using engine = await openEngineIn(
      worldOf({ cuda: missing, cpu: { state: "crashed", reason: "SIGSEGV" }, reference: referenceBackend }),
    );
    expect(engine.selection).toMatchObject({
      chosen: "reference",
      reason: expect.stringMatching(/cuda: package-missing, cpu: crashed/),
    });
  });

  it("auto says what was wrong with each, and numbers what to do", async () => {
    const old = { state: "driver-too-old", reason: "driver 1", fix: "update it; or run in a container" } as const;
    await expect(openEngineIn(worldOf({ cuda: missing, hip: old }))).rejects.toMatchObject({
      code: "device-unavailable",
      message: [
        "no back end can be used:",
        "  - cuda: @tessera/cuda is not installed",
        "  - hip: driver 1",
        "What to do:",
        "  1. cuda: npm install @tessera/cuda",
        "  2. hip: update it",
        "  3. hip: run in a container",
      ].join("\n"),
    });
  });

  it("auto goes on when a usable one doesn't load", async () => {
    const world = worldOf({ cpu: usable("cpu"), reference: referenceBackend });
    using engine = await openEngineIn({
      ...world,
      load: async (name) => {
        if (name === "cpu") throw new Error("no luck");
        return world.load(name);
      },
    });
    expect(engine.selection.tried[0]).toMatchObject({ backend: "cpu", state: "load-failed", reason: "no luck" });
  });

  it.each([
    ["package-missing", "backend-missing"],
    ["load-failed", "backend-missing"],
    ["not-a-backend", "backend-missing"],
    ["abi-mismatch", "abi-mismatch"],
    ["driver-too-old", "device-unavailable"],
    ["no-device", "device-unavailable"],
    ["crashed", "device-unavailable"],
    ["timed-out", "device-unavailable"],
  ] as const)("a named back end that is %s is an error, never another back end", async (state, code) => {
    const cuda = { state, reason: "why", fix: "do this" };
    const world = worldOf({ cuda, reference: referenceBackend });
    const wanted = {
      code,
      message: expect.stringMatching(/^cuda can't be used .*why\nWhat to do:\n {2}1\. do this$/s),
    };
    await expect(openEngineIn(world, { backend: "cuda" })).rejects.toMatchObject(wanted);
    await expect(openEngineIn({ ...world, environment: { TESSERA_BACKEND: "cuda" } })).rejects.toMatchObject(wanted);
  });

  it("the environment asks, the option overrules it", async () => {
    const world = worldOf({ cpu: usable("cpu"), reference: referenceBackend }, { TESSERA_BACKEND: "reference" });
    using asked = await openEngineIn(world);
    expect(asked.selection).toMatchObject({ chosen: "reference", requestedBy: "environment", requested: "reference" });
    using overruled = await openEngineIn(world, { backend: "auto" });
    expect(overruled.selection).toMatchObject({ chosen: "cpu", requestedBy: "option" });
    using empty = await openEngineIn({ ...world, environment: { TESSERA_BACKEND: "" } });
    expect(empty.selection).toMatchObject({ chosen: "cpu", requestedBy: "default" });
  });

  it("a named device is that one or none", async () => {
    const [first] = referenceBackend.probe().devices;
    const devices = [
      { ...first!, state: "arch-not-in-build", reason: "found sm_75, built for sm_80" } as const,
      { ...first!, index: 1 },
    ];
    const cuda = { ...usable("cuda"), probe: () => ({ state: "usable", reason: "", fix: "", devices }) as const };
    const opened: number[] = [];
    cuda.open = ({ device }) => {
      opened.push(device);
      return referenceBackend.open({ device: 0 });
    };
    const world = worldOf({ cuda, reference: referenceBackend });
    for (const options of [{}, { device: 1 }, { backend: "cuda", device: 1 }, { backend: "cuda" }] as const) {
      (await openEngineIn(world, options)).dispose();
    }
    expect(opened).toEqual([1, 1, 1, 1]);
    await expect(openEngineIn(world, { backend: "cuda", device: 0 })).rejects.toMatchObject({
      code: "device-unavailable",
      message: expect.stringMatching(/found sm_75, built for sm_80/),
    });
    await expect(openEngineIn(world, { backend: "cuda", device: 7 })).rejects.toMatchObject({
      code: "device-unavailable",
      message: expect.stringMatching(/no device 7, only 0, 1/),
    });
    await expect(openEngineIn(world, { device: 7 })).rejects.toMatchObject({
      code: "device-unavailable",
      message: expect.stringMatching(/no back end has a usable device 7/),
    });
    await expect(openEngineIn(worldOf({ reference: referenceBackend }), { device: 0 })).rejects.toMatchObject({
      code: "device-unavailable",
    });
    using named = await openEngineIn(worldOf({ reference: referenceBackend }), { backend: "reference", device: 0 });
    expect(named.backend).toBe("reference");
  });

  it("a library of one's own", async () => {
    const world = worldOf({ reference: referenceBackend });
    const own = {
      ...world,
      probe: async ({ library }: { library?: string }) => [{ backend: library!, ...referenceBackend.probe() }],
      load: async (which: unknown) => ({ ...referenceBackend, name: JSON.stringify(which) }),
    };
    using engine = await openEngineIn(own, { library: "/lib/mine.so" });
    expect(engine.backend).toBe('{"library":"/lib/mine.so"}');
    await expect(openEngineIn(own, { library: "/lib/mine.so", backend: "cpu" } as never)).rejects.toThrow(
      /backend and library are both given/,
    );
  });

  it.each([
    [{ backend: "cude" }, /backend is "cude"; allowed: "auto", "cuda", "reference"\. Did you mean cuda\?/],
    [{ backend: 3 }, /backend is 3/],
    [{ device: -1 }, /device is -1/],
    [{ threads: 0 }, /threads is 0/],
    [{ library: 5 }, /library is 5/],
    [{ backends: "cuda" }, /openEngine has no option "backends"\. Did you mean backend\?/],
  ])("%j is an invalid argument", async (options, message) => {
    const world = worldOf({ cuda: missing, reference: referenceBackend });
    await expect(openEngineIn(world, options as never)).rejects.toMatchObject({
      code: "invalid-argument",
      message: expect.stringMatching(message),
    });
  });

  it("a wrong name in the environment is named as such", async () => {
    const world = worldOf({ reference: referenceBackend }, { TESSERA_BACKEND: "gpu" });
    await expect(openEngineIn(world)).rejects.toThrow(/TESSERA_BACKEND is "gpu"/);
  });
});
