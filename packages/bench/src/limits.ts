/**
 * What needs native code of its own. Of a GPU, the rate of a matrix product, of reading, and attention that isn't fused:
 * native/gpu_limits.cpp opens cuBLAS and NVRTC where they are; NVIDIA only, nobody has tried hipBLAS yet. Of a CPU,
 * multiply-adds on registers alone, native/cpu_limits.cpp. Where a program or a library is missing, that is told and the
 * run goes on without.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Engine } from "@tessera/core";
import type { Plan } from "./measure.js";
import type { Ceiling, Ceilings, Measurement, Shape } from "./result.js";
import { median, spread } from "./statistics.js";

const execute = promisify(execFile);

/** Why there is none; undefined if there is. */
export class NoLimits extends Error {}

async function answer(
  name: "gpu_limits" | "cpu_limits",
  args: readonly (string | number)[],
  signal: AbortSignal | undefined,
): Promise<unknown> {
  const variable = `TESSERA_${name.toUpperCase()}`;
  const own = process.env[variable];
  const path = own || fileURLToPath(new URL(`../native/build/${name}`, import.meta.url));
  // The reason goes into result files, which are sent to others: no path of this machine.
  const what = own ? `what ${variable} names` : `@tessera/bench's ${name}`;
  if (!existsSync(path)) throw new NoLimits(`${what} is not built (npm run build, in a clone)`);
  try {
    const { stdout } = await execute(path, args.map(String), { timeout: 120_000, signal });
    return JSON.parse(stdout) as unknown;
  } catch (error) {
    signal?.throwIfAborted();
    const { stderr, message } = error as { stderr?: string; message: string };
    throw new NoLimits(stderr?.trim() || message);
  }
}

function ofGpu(engine: Engine, args: readonly (string | number)[], signal: AbortSignal | undefined): Promise<unknown> {
  if (engine.backend !== "cuda") throw new NoLimits("it is measured on NVIDIA GPUs only");
  const device = engine.device.id.includes(":") ? engine.device.id : String(engine.device.index);
  return answer("gpu_limits", [device, ...args], signal);
}

interface Product {
  readonly method: string;
  readonly flops: number;
  readonly samples: number[];
}

/**
 * What no matrix product on that many threads passes.
 *
 * @throws NoLimits
 */
export async function cpuCeilings(threads: number, plan: Plan): Promise<Pick<Ceilings, "matmul16" | "matmul32">> {
  const told = await answer("cpu_limits", [plan.repeats, threads], plan.signal);
  const { f32, bf16 } = told as { readonly f32: Product; readonly bf16?: Product };
  const of = ({ method, flops, samples }: Product, more: string): Ceiling => ({
    value: flops / 1e9 / Math.min(...samples), // nothing but other programs makes it slower
    unit: "TFLOP/s",
    method: `multiply-adds on registers alone, ${method}${more}, on ${threads} thread${threads === 1 ? "" : "s"}, the fastest`,
    spread: spread(samples),
    samples,
  });
  // Without an instruction for two bytes the values are widened first.
  return { matmul16: bf16 ? of(bf16, "") : of(f32, " of f32"), matmul32: of(f32, "") };
}

interface Rates {
  readonly read: { readonly bytes: number; readonly samples: number[] };
  readonly matmul16: { readonly flops: number; readonly samples: number[] };
}

/** @throws NoLimits */
export async function gpuCeilings(engine: Engine, plan: Plan): Promise<Pick<Ceilings, "read" | "matmul16">> {
  const { read, matmul16 } = (await ofGpu(engine, ["ceilings", plan.repeats], plan.signal)) as Rates;
  const of = (samples: number[], value: number, unit: Ceiling["unit"], method: string): Ceiling => {
    return { value, unit, method, spread: spread(samples), samples };
  };
  const gbs = read.bytes / 1e6 / median(read.samples);
  const tflops = matmul16.flops / 1e9 / median(matmul16.samples);
  return {
    read: of(read.samples, gbs, "GB/s", "1 GiB read once by a kernel that adds it up"),
    matmul16: of(matmul16.samples, tflops, "TFLOP/s", "cuBLAS, 8,192³, f16 in and out, f32 sums"),
  };
}

interface Unfused {
  readonly samples: number[];
  readonly error: number;
  readonly wall: number[];
  readonly stages: { readonly [name: string]: number[] };
}

/** Largest error of random normal input that rounding the scores to f16 leaves. */
const unfusedBound = 0.02;

/** @throws NoLimits also if the scores don't fit into memory */
export async function unfused(
  engine: Engine,
  { batch, heads, queries, dim }: Shape,
  plan: Plan,
): Promise<Pick<Measurement, "clock" | "samples" | "median" | "spread" | "check" | "stages">> {
  const args = ["unfused", plan.repeats, batch, heads, queries, dim];
  const { samples, error, wall, stages } = (await ofGpu(engine, args, plan.signal)) as Unfused;
  const whole = median(wall);
  const shares: [string, number][] = Object.entries(stages).map(([name, times]) => [name, median(times) / whole]);
  const inStages = shares.reduce((sum, [, share]) => sum + share, 0);
  return {
    clock: "device",
    samples,
    median: median(samples),
    spread: spread(samples),
    check: { ok: error <= unfusedBound, rows: 4, maxError: error, bound: unfusedBound },
    stages: Object.fromEntries([...shares, ["launching and waiting", Math.max(0, 1 - inStages)]]),
  };
}
