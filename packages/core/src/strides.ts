/** Shapes and strides: counting, bounds, and the rules that every view keeps. */
import { bytesOf, type DType, dtypes } from "./dtype.js";
import { describe } from "./host-tensor.js";
import { invalid } from "./invalid.js";

/** Row-major strides, in elements. */
export function contiguousStrides(shape: readonly number[]): number[] {
  const strides = new Array<number>(shape.length);
  let step = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    strides[i] = step;
    step *= shape[i]!;
  }
  return strides;
}

/** Elements of a shape. */
export function countOf(shape: readonly number[]): number {
  let count = 1;
  for (const extent of shape) count *= extent;
  return count;
}

/** Elements between the first and one past the last that a view reaches; 0 if it has none. */
export function extentOf(shape: readonly number[], strides: readonly number[]): number {
  let last = 0;
  for (let i = 0; i < shape.length; i++) {
    if (shape[i] === 0) return 0;
    last += (shape[i]! - 1) * strides[i]!;
  }
  return last + 1;
}

/** Whether elements lie one after the other; extents of 1 don't matter. */
export function isContiguous(shape: readonly number[], strides: readonly number[]): boolean {
  let step = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    if (shape[i] === 0) return true;
    if (shape[i] !== 1 && strides[i] !== step) return false;
    step *= shape[i]!;
  }
  return true;
}

/** "[2, 3, 4]". */
export const shapeText = (shape: readonly number[]) => `[${shape.join(", ")}]`;

/** Checks that `shape` is a list of 1 to 4 extents whose product is exactly representable. */
export function checkShape(shape: unknown, name: string): asserts shape is readonly number[] {
  if (!Array.isArray(shape) || shape.length === 0 || shape.length > 4) {
    throw invalid(`${name}.shape is ${describe(shape)}; allowed: an array of 1 to 4 extents`);
  }
  // Zero extents must not hide an overflow of the others.
  let product = 1;
  for (const extent of shape as unknown[]) {
    if (typeof extent !== "number" || !Number.isSafeInteger(extent) || extent < 0) {
      throw invalid(`${name}.shape is [${shape.join(", ")}]; allowed: whole numbers from 0 to 2^53 - 1`);
    }
    product *= Math.max(extent, 1);
  }
  if (!Number.isSafeInteger(product)) {
    throw invalid(`${name}.shape is ${shapeText(shape)}: more than 2^53 - 1 elements`);
  }
}

/** Checks strides against a shape: one each, whole, not negative, the last 1, block formats in whole blocks. */
export function checkStrides(
  strides: unknown,
  shape: readonly number[],
  dtype: DType,
  name: string,
): asserts strides is readonly number[] {
  if (!Array.isArray(strides) || strides.length !== shape.length) {
    throw invalid(
      `${name}.strides is ${describe(strides)}; allowed: ${shape.length} strides, in elements, as many as extents`,
    );
  }
  const { block } = dtypes[dtype];
  for (let i = 0; i < strides.length; i++) {
    const stride: unknown = strides[i];
    if (typeof stride !== "number" || !Number.isSafeInteger(stride) || stride < 0) {
      throw invalid(`${name}.strides is [${strides.join(", ")}]; allowed: whole numbers >= 0`);
    }
    const last = i === strides.length - 1;
    if (last && stride !== 1 && shape[i]! > 1) {
      throw invalid(
        `${name}.strides is [${strides.join(", ")}]: the last dimension must be contiguous (stride 1), it has ${stride}; copy it`,
      );
    }
    if (!last && stride % block !== 0 && shape[i]! > 1) {
      throw invalid(
        `${name}.strides is [${strides.join(", ")}]; allowed for ${dtype}: multiples of ${block} (elements)`,
      );
    }
  }
  if (!Number.isSafeInteger(extentOf(shape, strides as number[]))) {
    throw invalid(`${name}.strides is [${strides.join(", ")}]: reaches beyond 2^53 - 1 elements`);
  }
}

/** Checks that the last extent is a whole number of blocks. */
export function checkBlocks(shape: readonly number[], dtype: DType, name: string): void {
  const { block } = dtypes[dtype];
  if (block > 1 && shape[shape.length - 1]! % block !== 0) {
    throw invalid(
      `${name}.shape is ${shapeText(shape)}; allowed for ${dtype}: a last dimension that is a multiple of ${block}`,
    );
  }
}

/** Checks that a view fits into `bytes` bytes. */
export function checkReach(
  shape: readonly number[],
  strides: readonly number[],
  dtype: DType,
  bytes: number,
  name: string,
): void {
  // Block formats: the last row's blocks are whole, so the extent in elements rounds up to them.
  const { block } = dtypes[dtype];
  const extent = Math.ceil(extentOf(shape, strides) / block) * block;
  const needed = bytesOf(dtype, extent);
  if (needed > bytes) {
    throw invalid(
      `${name} is too short: shape ${shapeText(shape)} with strides ${shapeText(strides)} needs ${needed} bytes of ${dtype}, it has ${bytes}`,
    );
  }
}
