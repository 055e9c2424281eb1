/** Whether results can be written without touching inputs, or each other. */
import type { TensorDesc } from "./backend.js";
import { bytesOf } from "./dtype.js";
import { invalid } from "./invalid.js";

/** Whether elements of a view overlap, or its dimensions mesh like teeth, so that no slice or transpose gives it. */
export function overlapsItself({ shape, strides }: TensorDesc): boolean {
  if (shape.includes(0) || isDense(shape, strides)) return false;
  const inOrder = strides.map((stride, i) => [stride, shape[i]!] as const).sort(([a], [b]) => a - b);
  let reach = 1;
  for (const [stride, extent] of inOrder) {
    if (extent === 1) continue;
    if (stride < reach) return true;
    reach += (extent - 1) * stride;
  }
  return false;
}

// The common case, told without allocating.
function isDense(shape: readonly number[], strides: readonly number[]): boolean {
  let count = 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    if (strides[d] !== count) return false;
    count *= shape[d]!;
  }
  return true;
}

const memoryOf = ({ data }: TensorDesc): object => (ArrayBuffer.isView(data) ? data.buffer : data);

interface Span {
  readonly begin: number;
  readonly end: number;
  /** Bytes of a row of the last dimension. */
  readonly row: number;
  /** Of the dimensions that repeat rows, in bytes. */
  readonly steps: readonly { readonly stride: number; readonly extent: number }[];
}

function spanOf({ data, byteOffset, dtype, shape, strides }: TensorDesc): Span {
  const onHost = ArrayBuffer.isView(data);
  const begin = byteOffset + (onHost ? data.byteOffset : 0);
  const row = bytesOf(dtype, shape.at(-1)!);
  const steps = shape
    .slice(0, -1)
    .map((extent, i) => ({ stride: bytesOf(dtype, strides[i]!), extent }))
    .filter(({ extent }) => extent !== 1);
  const last = steps.reduce((sum, { stride, extent }) => sum + (extent - 1) * stride, begin);
  const end = shape.includes(0) ? begin : last + row;
  return { begin, end, row, steps };
}

/** Bytes that a view takes of each period, if it repeats with it. */
function within({ row, steps }: Span, period: number): number | undefined {
  let bytes = row;
  for (const { stride, extent } of steps) {
    if (stride < period) bytes += (extent - 1) * stride;
    else if (stride % period !== 0) return undefined;
  }
  return bytes;
}

/** Whether two spans of one memory pass each other by, as heads of one fused array do. */
function interleaved(a: Span, b: Span): boolean {
  return a.steps.some(({ stride: period }) => {
    if (period === 0) return false;
    const [ofA, ofB] = [within(a, period), within(b, period)];
    if (ofA === undefined || ofB === undefined) return false;
    const from = (((b.begin - a.begin) % period) + period) % period;
    return from >= ofA && from + ofB <= period;
  });
}

/**
 * Checks that a result that the caller gave shares no byte with an input.
 *
 * @param inputs tensors by their names; other members don't matter
 * @throws TesseraError `invalid-argument`
 */
export function checkApart(out: TensorDesc, inputs: object): void {
  if (out.shape.includes(0)) return;
  const memory = memoryOf(out);
  for (const name in inputs) {
    const value: unknown = inputs[name as keyof typeof inputs];
    if (typeof value !== "object" || value === null || !("strides" in value)) continue;
    if (memoryOf(value as TensorDesc) !== memory) continue;
    const [target, source] = [spanOf(out), spanOf(value as TensorDesc)];
    if (source.begin === source.end || source.begin >= target.end || target.begin >= source.end) continue;
    if (!interleaved(target, source))
      throw invalid(`out and ${name} share memory; allowed: an out apart from every input`);
  }
}
