import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Engine } from "@tessera/core";
import { afterAll, afterEach, describe, expect, it, vi } from "vitest";
import { cpuCeilings, gpuCeilings, NoLimits, unfused } from "../src/limits.js";

const folder = mkdtempSync(join(tmpdir(), "tessera-limits-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
afterEach(() => vi.unstubAllEnvs());

const gpu = (backend = "cuda") => ({ backend, device: { id: "0000:01:00.0", index: 0 } }) as unknown as Engine;
const plan = { repeats: 20, sampleMs: 1, warmUpMs: 0 };
const shape = { batch: 4, heads: 32, kvHeads: 32, queries: 1024, keys: 1024, dim: 128 };

/** A program in place of the real one. */
function playing(script: string): void {
  const path = join(folder, "program");
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o755);
  vi.stubEnv("TESSERA_GPU_LIMITS", path);
  vi.stubEnv("TESSERA_CPU_LIMITS", path);
}

describe("limits of a GPU", () => {
  it("come from a program of its own", async () => {
    playing(`[ "$*" = "0000:01:00.0 ceilings 20" ] || exit 3
echo '{"read": {"bytes": 4000000, "samples": [1, 2, 1]}, "matmul16": {"flops": 5e9, "samples": [2, 2, 4]}}'`);
    const { read, matmul16 } = await gpuCeilings(gpu(), plan);
    expect(read).toMatchObject({ value: 4, unit: "GB/s", samples: [1, 2, 1] });
    expect(matmul16).toMatchObject({ value: 2.5, unit: "TFLOP/s" });
  });

  it("unfused attention: its stages' shares, and the rest is launching", async () => {
    playing(`[ "$*" = "0000:01:00.0 unfused 20 4 32 1024 128" ] || exit 3
echo '{"samples": [9, 9], "error": 0.001, "wall": [10, 10], "stages": {"a": [4, 4], "b": [3, 3], "c": [2, 2]}}'`);
    const { stages, median, check } = await unfused(gpu(), shape, plan);
    expect(median).toBe(9);
    expect(stages).toMatchObject({ a: 0.4, b: 0.3, c: 0.2 });
    expect(stages!["launching and waiting"]).toBeCloseTo(0.1);
    expect(check).toMatchObject({ ok: true, maxError: 0.001 });
  });

  it("that aren't to be had are told of, and no more", async () => {
    playing("echo 'cuBLAS is not there' >&2; exit 1");
    await expect(gpuCeilings(gpu(), plan)).rejects.toEqual(new NoLimits("cuBLAS is not there"));
    vi.stubEnv("TESSERA_GPU_LIMITS", join(folder, "absent"));
    await expect(gpuCeilings(gpu(), plan)).rejects.toThrow(/^what TESSERA_GPU_LIMITS names is not built/);
    await expect(gpuCeilings(gpu("hip"), plan)).rejects.toThrow(/NVIDIA GPUs only/);
  });

  it("the real program says what it misses", async (ctx) => {
    if (existsSync("/proc/driver/nvidia/version")) ctx.skip("an NVIDIA driver is here");
    await expect(gpuCeilings(gpu(), plan)).rejects.toThrow(/the NVIDIA driver is not there: libcuda\.so\.1/);
  });
});

describe("limits of a CPU", () => {
  it("come from a program of its own; two bytes have f32's where there is no instruction for them", async () => {
    const f32 = '"f32": {"method": "AVX9", "flops": 8e9, "samples": [4, 2, 4]}';
    playing(`[ "$*" = "20 3" ] || exit 3
echo '{${f32}, "bf16": {"method": "AVX9 BF16", "flops": 8e9, "samples": [1]}}'`);
    const { matmul16, matmul32 } = await cpuCeilings(3, plan);
    expect(matmul32).toMatchObject({ value: 4, unit: "TFLOP/s", samples: [4, 2, 4] });
    expect(matmul16).toMatchObject({
      value: 8,
      method: "multiply-adds on registers alone, AVX9 BF16, on 3 threads, the fastest",
    });
    playing(`echo '{${f32}}'`);
    expect((await cpuCeilings(1, plan)).matmul16).toMatchObject({
      value: 4,
      method: expect.stringMatching(/AVX9 of f32, on 1 thread, the fastest$/),
    });
    vi.stubEnv("TESSERA_CPU_LIMITS", join(folder, "absent"));
    await expect(cpuCeilings(1, plan)).rejects.toThrow(/^what TESSERA_CPU_LIMITS names is not built/);
  });

  it("the real program: a rate that a processor can have", async () => {
    const { matmul16, matmul32 } = await cpuCeilings(1, { ...plan, repeats: 3 });
    // The slowest vectors that it knows, at 1 GHz, do 8 of them a cycle; nothing does a thousand.
    expect(matmul32!.value).toBeGreaterThan(0.001);
    expect(matmul32!.value).toBeLessThan(5);
    expect(matmul16!.value).toBeGreaterThan(0.5 * matmul32!.value);
  });
});
