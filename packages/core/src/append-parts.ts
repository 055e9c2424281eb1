/** Pieces of an append: where its host arrays and its rotated queries go. */
import type { AppendDesc, TensorDesc } from "./backend.js";
import type { CheckedTokens } from "./check-append.js";
import { swapHeads, swapped } from "./check-attention.js";
import type { FloatDType } from "./dtype.js";
import type { EngineCore } from "./engine-core.js";
import { newHostArray, type Staging } from "./staging.js";
import { contiguousStrides } from "./strides.js";
import { allocateTensor, type Tensor } from "./tensor.js";
import { isTensor } from "./tensor-brand.js";

/** Host arrays of an append where the device can read them. */
export function stagedAppend(desc: AppendDesc, staging: Staging): AppendDesc {
  const staged = staging.inputs(desc);
  const positions = desc.rope?.positions;
  return positions ? { ...staged, rope: { ...desc.rope!, positions: staging.input(positions) } } : staged;
}

/** Memory for a rotated q, on the host if q is. `keeper` lends it for a call that doesn't give it away. */
export function rotatedQueries(
  core: EngineCore,
  q: unknown,
  tokens: CheckedTokens,
  staging: Staging,
  keeper?: { rotatedQueries(dtype: FloatDType, shape: readonly number[]): Tensor },
) {
  const dtype = tokens.q!.dtype as FloatDType;
  const shape = tokens.bhsd ? swapped(tokens.q!.shape) : tokens.q!.shape;
  const turned = (desc: TensorDesc) => (tokens.bhsd ? swapHeads(desc) : desc);
  if (isTensor(q)) {
    if (keeper) return { desc: turned(keeper.rotatedQueries(dtype, shape).desc), result: undefined, dispose: () => {} };
    const tensor = allocateTensor(core, dtype, shape);
    return { desc: turned(tensor.desc), result: tensor as unknown, dispose: () => tensor.dispose() };
  }
  const data = newHostArray(dtype, shape);
  const desc = staging.output({ data, byteOffset: 0, dtype, shape, strides: contiguousStrides(shape) });
  return { desc: turned(desc), result: { data, dtype, shape } as unknown, dispose: () => {} };
}

/** A vector of whole numbers. */
export function ints(data: Int32Array): TensorDesc {
  return { data, byteOffset: 0, dtype: "i32", shape: [data.length], strides: [1] };
}

/** A vector of float32. */
export function floats(data: Float32Array): TensorDesc {
  return { data, byteOffset: 0, dtype: "f32", shape: [data.length], strides: [1] };
}
