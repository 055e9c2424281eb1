/** The verb `merge`. */
import type { MergeDesc, TensorDesc } from "./backend.js";
import { layouts, swapHeads, swapped } from "./check-attention.js";
import type { FloatDType } from "./dtype.js";
import type { EngineCore } from "./engine-core.js";
import { describe } from "./host-tensor.js";
import { invalid } from "./invalid.js";
import { floatDTypes, operandOf } from "./operands.js";
import { checkNames, checkWord } from "./option-names.js";
import { newHostArray, Staging } from "./staging.js";
import { contiguousStrides, shapeText } from "./strides.js";
import { allocateTensor, type Tensor } from "./tensor.js";
import { isTensor } from "./tensor-brand.js";

const partNames = new Set(["out", "lse"]);
const optionNames = new Set(["layout"]);

interface CheckedMerge {
  readonly outs: readonly TensorDesc[];
  readonly lses: readonly TensorDesc[];
  readonly outShape: readonly number[];
  readonly lseShape: readonly number[];
  readonly dtype: FloatDType;
  readonly onHost: boolean;
}

function checkMerge(core: EngineCore, parts: unknown, bhsd: boolean): CheckedMerge {
  if (!Array.isArray(parts) || parts.length === 0) {
    throw invalid(`merge takes a list of { out, lse }; got ${describe(parts)}; allowed: at least one part`);
  }
  const outs: TensorDesc[] = [];
  const lses: TensorDesc[] = [];
  for (const [n, part] of parts.entries()) {
    checkNames(part, partNames, `merge: part ${n}`);
    const { out, lse } = part as { out?: unknown; lse?: unknown };
    if (lse === undefined)
      throw invalid(`parts[${n}].lse is missing; required: attention gives it with returnLse: true`);
    outs.push(operandOf(out, `parts[${n}].out`, floatDTypes, core));
    lses.push(operandOf(lse, `parts[${n}].lse`, ["f32"], core));
  }
  const outShape = outs[0]!.shape;
  if (outShape.length < 3)
    throw invalid(`parts[0].out has shape ${shapeText(outShape)}; allowed: [B, Sq, Hq, Dv] or [T, Hq, Dv]`);
  const [rows, heads] = (bhsd ? swapped(outShape) : outShape).slice(-3) as [number, number];
  const lseShape = [...outShape.slice(0, -3), heads, rows];
  for (const [n, out] of outs.entries()) {
    expectShape(out, outShape, `parts[${n}].out`);
    expectShape(lses[n]!, lseShape, `parts[${n}].lse`);
  }
  const first: { out?: unknown } = parts[0];
  return { outs, lses, outShape, lseShape, dtype: outs[0]!.dtype as FloatDType, onHost: !isTensor(first.out) };
}

function expectShape(desc: TensorDesc, shape: readonly number[], name: string): void {
  if (desc.shape.length === shape.length && desc.shape.every((extent, i) => extent === shape[i])) return;
  throw invalid(`${name} has shape ${shapeText(desc.shape)}; allowed: ${shapeText(shape)}`);
}

/** `engine.merge`. */
export function mergeCall(
  core: EngineCore,
  parts: unknown,
  options: unknown = {},
): Promise<{ out: unknown; lse: unknown }> {
  const staging = new Staging(core);
  const made: Tensor[] = [];
  try {
    core.alive();
    checkNames(options, optionNames, "merge");
    const layout = (options as { layout?: unknown }).layout ?? "bshd";
    checkWord(layout, layouts, "layout");
    const bhsd = layout === "bhsd";
    const checked = checkMerge(core, parts, bhsd);
    const place = (dtype: FloatDType, shape: readonly number[]) => {
      if (!checked.onHost) {
        const tensor = allocateTensor(core, dtype, shape);
        made.push(tensor);
        return { result: tensor, desc: tensor.desc };
      }
      const data = newHostArray(dtype, shape);
      const desc = { data, byteOffset: 0, dtype, shape, strides: contiguousStrides(shape) };
      return { result: { data, dtype, shape }, desc: staging.output(desc) };
    };
    const out = place(checked.dtype, checked.outShape);
    const lse = place("f32", checked.lseShape);
    const turned = (desc: TensorDesc) => (bhsd ? swapHeads(desc) : desc);
    const desc: MergeDesc = {
      outs: checked.outs.map((part) => turned(staging.input(part))),
      lses: checked.lses.map((part) => staging.input(part)),
      out: turned(out.desc),
      lse: lse.desc,
    };
    return core.context
      .merge(desc)
      .then(() => staging.collect())
      .then(() => ({ out: out.result, lse: lse.result }))
      .catch((error: unknown) => {
        for (const tensor of made) tensor.dispose();
        throw error;
      })
      .finally(() => staging.finish());
  } catch (error) {
    for (const tensor of made) tensor.dispose();
    staging.finish();
    return Promise.reject(error);
  }
}
