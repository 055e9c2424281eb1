/** The doctor on the GPU back ends as they are built, over a driver and a runtime that play their states: their own words. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const root = join(dirname(fileURLToPath(import.meta.url)), "../../..");

interface Found {
  readonly backend: string;
  readonly state: string;
  readonly cause: string;
  readonly fixes: readonly string[];
  readonly devices: readonly { readonly state: string; readonly reason: string }[];
}

function doctor(backend: string, env: NodeJS.ProcessEnv): Found {
  const { CUDA_VISIBLE_DEVICES: _, HIP_VISIBLE_DEVICES: __, ROCR_VISIBLE_DEVICES: ___, ...rest } = process.env;
  const { stdout } = spawnSync(process.execPath, [join(root, "packages/cli/bin/tessera.js"), "doctor", "--json"], {
    encoding: "utf8",
    env: { ...rest, TESSERA_BACKEND: "", TESSERA_BACKEND_PATH: join(root, "backends", backend, "lib"), ...env },
  });
  return JSON.parse(stdout).backends.find((one: Found) => one.backend === backend);
}

function needs(context: { skip(reason: string): void }, ...files: string[]): void {
  for (const file of files)
    if (!existsSync(join(root, file))) context.skip(`${file} isn't there: build the GPU back ends and their tests`);
}

describe("cuda, over the stub of a driver", () => {
  const stub = "build/cuda/backends/cuda/stub-driver";
  it.for<[string, NodeJS.ProcessEnv, RegExp]>([
    ["driver-too-old", { STUB_VERSION: "11040" }, /11\.4.*\b1[23]\.\d/],
    ["no-device", { STUB_INIT: "100", STUB_GPUS: "0" }, /finds no GPU/],
    [
      "hidden-by-environment",
      { STUB_INIT: "100", STUB_GPUS: "2", CUDA_VISIBLE_DEVICES: "7" },
      /CUDA_VISIBLE_DEVICES is "7"/,
    ],
    ["arch-not-in-build", { STUB_DEVICES: "75" }, /found sm_75 \(Stub GPU 0\), needs compute capability 8\.0/],
  ])("%s", ([state, env, cause], context) => {
    needs(context, "backends/cuda/lib/libtessera-cuda.so", `${stub}/libcuda.so.1`);
    const found = doctor("cuda", { LD_LIBRARY_PATH: join(root, stub), ...env });
    expect(found).toMatchObject({ state, cause: expect.stringMatching(cause) });
    expect(found.fixes.length).toBeGreaterThan(0);
  });
  it("driver-missing", (context) => {
    needs(context, "backends/cuda/lib/libtessera-cuda.so");
    if (existsSync("/proc/driver/nvidia/version")) context.skip("this machine has the driver");
    const found = doctor("cuda", {});
    expect(found).toMatchObject({ state: "driver-missing", cause: expect.stringContaining("libcuda.so.1") });
    expect(found.fixes[0]).toMatch(/install the NVIDIA driver/);
  });
});

describe("hip, over a runtime without a GPU", () => {
  const runtime = "build/hip/backends/hip/runtime-7";
  it("arch-not-in-build: found, and the list that it is built for", (context) => {
    needs(context, "backends/hip/lib/libtessera-hip.so", `${runtime}/libamdhip64.so.7`);
    const found = doctor("hip", { LD_LIBRARY_PATH: join(root, runtime), STUB_DEVICES: "gfx906" });
    expect(found.state).toBe("arch-not-in-build");
    expect(found.cause).toMatch(/found gfx906.*built for \[gfx/);
    expect(found.fixes.length).toBeGreaterThan(0);
  });
  it("runtime-missing", (context) => {
    needs(context, "backends/hip/lib/libtessera-hip.so");
    if (existsSync("/opt/rocm")) context.skip("this machine has ROCm");
    const found = doctor("hip", {});
    expect(found).toMatchObject({ state: "runtime-missing", cause: expect.stringContaining("libamdhip64.so.7") });
    expect(found.fixes.length).toBeGreaterThan(0);
  });
});
