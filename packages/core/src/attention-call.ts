/** The verb `attention`, and what `decode` shares with it: where results go, and how a call ends. */
import type { AttentionDesc, TensorDesc } from "./backend.js";
import { type CheckedAttention, checkAttention, swapHeads } from "./check-attention.js";
import { done } from "./done.js";
import type { FloatDType } from "./dtype.js";
import type { EngineCore } from "./engine-core.js";
import { TesseraError } from "./error.js";
import { isFloat16Array } from "./host-tensor.js";
import { invalid } from "./invalid.js";
import { suggestion } from "./option-names.js";
import { newHostArray, Staging, shapeOnly } from "./staging.js";
import { contiguousStrides } from "./strides.js";
import { allocateTensor, type Tensor } from "./tensor.js";
import { shapeKey } from "./tune-key.js";

/** `kernel` names a row of this device's catalogue. */
export function checkKernelName(core: EngineCore, kernel: string | undefined): void {
  if (kernel === undefined) return;
  const names = core.kernels().map(({ name }) => name);
  if (names.includes(kernel)) return;
  throw invalid(
    `kernel is ${JSON.stringify(kernel)}; allowed on ${core.backend}: ${names.join(", ")}.${suggestion(kernel, names)}`,
  );
}

/**
 * The variant that `tune` found fastest, if nothing is forced and it can do this very call: a class of shapes may hold
 * one that it can't, by its strides or sizes.
 */
export function applyTuning(core: EngineCore, checked: CheckedAttention): void {
  const { desc } = checked;
  if (desc.kernel !== undefined || desc.numSplits !== undefined || core.tuned.size === 0) return;
  const best = core.tuned.get(shapeKey(checked));
  if (!best) return;
  const out = shapeOnly(checked.outDType, checked.outShape);
  const asked = { ...desc, ...best, out: checked.out ?? (checked.bhsd ? swapHeads(out) : out) };
  if (!core.context.supports(core.hostMemory ? asked : withoutHostArrays(asked)).supported) return;
  desc.kernel = best.kernel;
  desc.numSplits = best.numSplits;
}

/** A call's descriptor without results, and without host arrays that the device can't read. */
export function askable(core: EngineCore, checked: CheckedAttention): AttentionDesc {
  checkKernelName(core, checked.desc.kernel);
  applyTuning(core, checked);
  const { desc, outDType, outShape, lseShape, bhsd } = checked;
  const out = shapeOnly(outDType, outShape);
  desc.out = checked.out ?? (bhsd ? swapHeads(out) : out);
  if (checked.returnLse) desc.lse = shapeOnly("f32", lseShape);
  return core.hostMemory ? desc : withoutHostArrays(desc);
}

function withoutHostArrays(desc: AttentionDesc): AttentionDesc {
  const members: [string, unknown][] = Object.entries(desc).map(([name, value]) => {
    const onHost = typeof value === "object" && value !== null && "strides" in value && ArrayBuffer.isView(value.data);
    if (!onHost) return [name, value];
    const tensor = value as TensorDesc;
    return [name, { ...shapeOnly(tensor.dtype, tensor.shape), strides: tensor.strides }];
  });
  return Object.fromEntries(members) as unknown as AttentionDesc;
}

export interface Results {
  readonly out: unknown;
  readonly lse?: unknown;
}

/** The one part of an options object that says what results look like. */
interface Given {
  readonly q: unknown;
  readonly out?: unknown;
}

/**
 * Gives a checked call its results and runs it. Everything up to the back end's own call happens before this returns,
 * so calls are enqueued in the order in which they are made. What is wrong before that is thrown, not rejected. Results
 * that are a tensor of a device with queues are given as they are: nothing is left to wait for.
 *
 * @param late aborts while results come home from a device with queues, too: for calls that leave nothing behind there
 */
export function launch(
  core: EngineCore,
  given: Given,
  checked: CheckedAttention,
  run: (desc: AttentionDesc, staging: Staging) => Promise<void>,
  late?: AbortSignal,
): Results | Promise<Results> {
  const { desc, signal } = checked;
  if (signal?.aborted) throw signal.reason;
  checkKernelName(core, desc.kernel);
  const staging = new Staging(core);
  const made: Tensor[] = [];
  try {
    const result = resultsFor(core, given, checked, staging, made);
    const work = run(staging.inputs(desc as AttentionDesc), staging);
    if (work === done) return delivered(result, staging, late);
    return work.then(
      () => delivered(result, staging, late),
      (reason: unknown) => {
        abandon(made, staging);
        throw reason;
      },
    );
  } catch (error) {
    abandon(made, staging);
    throw error;
  }
}

function delivered(result: Results, staging: Staging, late: AbortSignal | undefined): Results | Promise<Results> {
  const home = staging.collect();
  if (!home) {
    staging.finish();
    return result;
  }
  const end = () => {
    staging.finish();
    if (late?.aborted) throw late.reason;
  };
  return home.then(
    () => {
      end();
      return result;
    },
    (reason: unknown) => {
      end();
      throw reason;
    },
  );
}

function abandon(made: readonly Tensor[], staging: Staging): void {
  for (const tensor of made) tensor.dispose();
  staging.finish();
}

/** @param made takes the tensors that are the engine's to give up if the call fails */
function resultsFor(
  core: EngineCore,
  given: Given,
  checked: CheckedAttention,
  staging: Staging,
  made: Tensor[],
): Results {
  try {
    return checked.onHost ? hostResults(given, checked, staging) : tensorResults(core, given, checked, made);
  } catch (error) {
    // No memory for results that the back end wouldn't compute anyway: that is the better reason.
    if (!(error instanceof TesseraError) || error.code !== "out-of-memory") throw error;
    const support = core.context.supports(askable(core, checked));
    if (support.supported) throw error;
    throw new TesseraError(support.code, support.reason, { cause: error });
  }
}

function tensorResults(core: EngineCore, given: Given, checked: CheckedAttention, made: Tensor[]): Results {
  const { desc, outShape, outDType, lseShape, bhsd } = checked;
  if (checked.out) desc.out = checked.out;
  else {
    const out = allocateTensor(core, outDType, outShape);
    made.push(out);
    desc.out = bhsd ? swapHeads(out.desc) : out.desc;
  }
  const out = checked.out ? given.out : made[0];
  if (!checked.returnLse) return { out };
  const lse = allocateTensor(core, "f32", lseShape);
  made.push(lse);
  desc.lse = lse.desc;
  return { out, lse };
}

function hostResults(given: Given, checked: CheckedAttention, staging: Staging): Results {
  const { desc, outShape, outDType, lseShape, bhsd } = checked;
  let out = given.out;
  if (checked.out) desc.out = staging.output(checked.out);
  else {
    const data = newHostArray(outDType, outShape);
    const view: TensorDesc = {
      data,
      byteOffset: 0,
      dtype: outDType,
      shape: outShape,
      strides: contiguousStrides(outShape),
    };
    desc.out = staging.output(bhsd ? swapHeads(view) : view);
    out = { data: likeInput(given.q, outDType, data), dtype: outDType, shape: outShape };
  }
  if (!checked.returnLse) return { out };
  const data = newHostArray("f32", lseShape);
  desc.lse = staging.output({
    data,
    byteOffset: 0,
    dtype: "f32",
    shape: lseShape,
    strides: contiguousStrides(lseShape),
  });
  return { out, lse: { data, dtype: "f32", shape: lseShape } };
}

/** A Float16Array for a Float16Array. */
function likeInput(q: unknown, dtype: FloatDType, data: ArrayBufferView): ArrayBufferView {
  const source = (q as { data?: unknown }).data;
  if (dtype !== "f16" || !isFloat16Array(source)) return data;
  const Float16 = source.constructor as new (buffer: ArrayBufferLike) => ArrayBufferView;
  return new Float16(data.buffer);
}

/** `engine.attention`. */
export function attentionCall(core: EngineCore, options: unknown): Promise<Results> {
  try {
    core.alive();
    const checked = checkAttention(options, core);
    applyTuning(core, checked);
    const { signal } = checked;
    const run = (desc: AttentionDesc) => core.context.attention(desc, signal);
    return Promise.resolve(launch(core, options as Given, checked, run, signal));
  } catch (error) {
    return Promise.reject(error);
  }
}
