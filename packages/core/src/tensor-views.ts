/** Shapes and strides of views: slicing, swapping, expanding and reshaping without moving an element. */
import { type DType, dtypes } from "./dtype.js";
import { invalid } from "./invalid.js";
import { checkWhole } from "./option-names.js";
import { checkBlocks, checkShape, contiguousStrides, countOf, shapeText } from "./strides.js";

/** A view: where it starts, in elements, and how it goes on. */
export interface Geometry {
  readonly start: number;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
}

type Shaped = Pick<Geometry, "shape" | "strides">;

function checkDimension(of: Shaped, dimension: unknown): asserts dimension is number {
  checkWhole(dimension, 0, "dimension", of.shape.length - 1);
}

/** Extents [begin, end) of one dimension. */
export function sliced(of: Shaped, dtype: DType, dimension: number, begin: number, end: number | undefined): Geometry {
  checkDimension(of, dimension);
  const extent = of.shape[dimension]!;
  const stop = end ?? extent;
  checkWhole(stop, 0, "end", extent);
  checkWhole(begin, 0, "begin", stop);
  const { block } = dtypes[dtype];
  if (dimension === of.shape.length - 1 && (begin % block !== 0 || stop % block !== 0)) {
    throw invalid(`slice from ${begin} to ${stop}; allowed in the last dimension of ${dtype}: multiples of ${block}`);
  }
  const shape = of.shape.with(dimension, stop - begin);
  return { start: begin * of.strides[dimension]!, shape, strides: of.strides };
}

/** Two dimensions swapped. */
export function transposed(of: Shaped, dtype: DType, a: number, b: number): Geometry {
  checkDimension(of, a);
  checkDimension(of, b);
  const last = of.shape.length - 1;
  if (dtypes[dtype].block > 1 && a !== b && (a === last || b === last)) {
    throw invalid(`transpose(${a}, ${b}): the last dimension of ${dtype} is stored in blocks and can't be moved`);
  }
  const swap = (list: readonly number[]) => list.with(a, list[b]!).with(b, list[a]!);
  return { start: 0, shape: swap(of.shape), strides: swap(of.strides) };
}

/** Extents of 1 repeated, and dimensions put in front, with stride 0. */
export function expanded(of: Shaped, shape: readonly number[]): Geometry {
  checkShape(shape, "expand");
  const added = shape.length - of.shape.length;
  const fits = added >= 0 && of.shape.every((extent, i) => extent === shape[i + added] || extent === 1);
  if (!fits)
    throw invalid(
      `expand to ${shapeText(shape)}; allowed: ${shapeText(of.shape)} with extents of 1 made larger or dimensions put in front`,
    );
  const strides = shape.map((extent, i) => {
    if (i < added) return 0;
    return of.shape[i - added] === extent ? of.strides[i - added]! : 0;
  });
  return { start: 0, shape: [...shape], strides };
}

/** Another shape over the same elements in the same order, where strides allow it. */
export function reshaped(of: Shaped, dtype: DType, shape: readonly number[]): Geometry {
  checkShape(shape, "reshape");
  if (countOf(shape) !== countOf(of.shape)) {
    throw invalid(
      `reshape to ${shapeText(shape)}, ${countOf(shape)} elements; allowed: ${countOf(of.shape)}, as in ${shapeText(of.shape)}`,
    );
  }
  checkBlocks(shape, dtype, "reshape");
  if (countOf(shape) === 0) return { start: 0, shape: [...shape], strides: contiguousStrides(shape) };
  const strides = foldStrides(of, shape);
  if (!strides) {
    throw invalid(
      `reshape of ${shapeText(of.shape)} with strides ${shapeText(of.strides)} to ${shapeText(shape)} needs a copy; read() it and make a tensor anew`,
    );
  }
  return { start: 0, shape: [...shape], strides };
}

/** Walks both shapes in groups of equal size; a group works if its old dimensions lie one after the other. */
function foldStrides(of: Shaped, shape: readonly number[]): number[] | undefined {
  const old = of.shape.map((extent, i) => ({ extent, stride: of.strides[i]! })).filter(({ extent }) => extent !== 1);
  const strides = new Array<number>(shape.length).fill(1);
  let at = shape.length - 1;
  for (let i = old.length - 1; i >= 0; ) {
    let size = old[i]!.extent;
    const { stride } = old[i]!;
    let made = 1;
    let step = stride;
    while (made < size || (at >= 0 && shape[at] === 1)) {
      if (at < 0) return undefined;
      strides[at] = step;
      step *= shape[at]!;
      made *= shape[at]!;
      at--;
      while (made > size) {
        const next = old[--i];
        if (!next || next.stride !== old[i + 1]!.stride * old[i + 1]!.extent) return undefined;
        size *= next.extent;
      }
    }
    if (made !== size) return undefined;
    i--;
  }
  return strides;
}
