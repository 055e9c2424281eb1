/** Limits of a device, measured in the same run as what is held against them. */
import { type Engine, type Tensor, TesseraError } from "@tessera/core";
import { type Call, type Plan, sample } from "./measure.js";
import { readOnce } from "./read-memory.js";
import type { Ceiling, Ceilings } from "./result.js";
import { median, spread } from "./statistics.js";

/** Work of one sample, and what it is the rate of. */
function rate(samples: readonly number[], work: number, unit: Ceiling["unit"], method: string): Ceiling {
  const scale = unit === "GB/s" ? 1e6 : 1e9;
  return { value: work / scale / median(samples), unit, method, spread: spread(samples), samples };
}

async function copyCeiling(engine: Engine, bytes: number, plan: Plan): Promise<Ceiling> {
  const make = () => engine.empty({ shape: [bytes / 4], dtype: "f32" });
  const tensors: Tensor<"f32">[] = [make(), make()];
  try {
    // The pages of host memory are there once they were written.
    for (const tensor of tensors) tensor.slice(0, 0, 1024).write(new Float32Array(1024));
    const [from, to] = tensors as [Tensor<"f32">, Tensor<"f32">];
    const copy = (source: Tensor<"f32">, target: Tensor<"f32">): Call => {
      return async () => {
        target.copyFrom(source);
        if (!engine.device.caps.async) await engine.synchronize();
      };
    };
    const { samples } = await sample(engine, [copy(from, to), copy(to, from)], plan);
    const how = engine.device.caps.async ? "by the device" : "by the back end, on one thread";
    const size = `${Math.round(bytes / 2 ** 20)} MiB copied ${how}`;
    return rate(samples, 2 * bytes, "GB/s", `${size}; bytes read and bytes written`);
  } finally {
    for (const tensor of tensors) tensor.dispose();
  }
}

/** @param threads of a CPU */
export async function ceilingsOf(
  engine: Engine,
  rotateBytes: number,
  threads: number | undefined,
  plan: Plan,
): Promise<Ceilings> {
  const { caps, memoryBytes } = engine.device;
  const bytes = Math.floor(Math.min(Math.max(rotateBytes, 2 ** 26), memoryBytes / 8) / 4096) * 4096;
  let copy: Ceiling | undefined;
  try {
    copy = await copyCeiling(engine, bytes, plan);
  } catch (error) {
    // A back end in TypeScript may have no copies: then there is no such ceiling.
    if (!(error instanceof TesseraError) || error.code !== "unsupported") throw error;
  }
  if (!caps.hostMemory) return { ...(copy && { copy }) };
  const { samples, method, total } = await readOnce(bytes, threads ?? 1, plan);
  return { ...(copy && { copy }), read: rate(samples, total, "GB/s", method) };
}
