/** The verb `merge`: results over disjoint keys, one after the other into sums. */
import { type FloatDType, type MergeDesc, TesseraError } from "@tessera/core/web";
import { wholeOf } from "./append.js";
import type { Target } from "./attention.js";
import { bindingOf, type Commands, gridOf, whole } from "./commands.js";
import { type Operand, operandOf, type Window } from "./operand.js";
import { shader } from "./pipelines.js";
import { packParams } from "./wgsl/fields.js";
import { mergeEndShader, mergeFields, mergePartShader } from "./wgsl/merge.js";

export function recordMerge({ outs, lses, out, lse }: MergeDesc, target: Target, commands: Commands): void {
  const { memory, can } = target;
  const [rows, heads, valueDim] = out.shape.slice(-3) as [number, number, number];
  const batch = out.shape.length > 3 ? out.shape[0]! : 1;
  const tasks = batch * rows * heads;
  if (tasks === 0) return;
  const bytes = tasks * (valueDim + 2) * 4;
  if (bytes > can.bindingBytes) {
    throw new TesseraError(
      "unsupported",
      `a merge of ${tasks} rows needs ${bytes} bytes; allowed on this device: ${can.bindingBytes}`,
    );
  }
  const sums = whole(memory.scratch("storage", "sums", bytes));
  const { groups, gridWidth } = gridOf(tasks, can.gridWidth);
  const params = (operand: Operand, window: Window, logs?: Operand, logWindow?: Window, first = false) =>
    packParams(mergeFields, {
      batch,
      rows,
      heads,
      valueDim,
      partBase: window.base,
      partBatch: operand.batch,
      partRow: operand.row,
      partHead: operand.head,
      logBase: logWindow?.base ?? 0,
      logBatch: logs?.batch ?? 0,
      logRow: logs?.row ?? 0,
      logHead: logs?.head ?? 0,
      first: first ? 1 : 0,
      firstTask: 0,
      gridWidth,
    });
  const work = tasks * valueDim;
  for (const [i, part] of outs.entries()) {
    const [o, l] = [operandOf(part, `outs[${i}]`, memory, "rows"), operandOf(lses[i]!, `lses[${i}]`, memory, "logs")];
    const [ow, lw] = [wholeOf(o, `outs[${i}]`, target), wholeOf(l, `lses[${i}]`, target, "logs")];
    commands.dispatch({
      shader: shader("merge part", part.dtype as FloatDType, mergePartShader),
      work,
      groups,
      params: params(o, ow, l, lw, i === 0),
      bindings: { 1: bindingOf(ow), 2: bindingOf(lw), 7: sums },
    });
  }
  const o = operandOf(out, "out", memory, "rows");
  const l = lse && operandOf(lse, "lse", memory, "logs");
  let ow = wholeOf(o, "out", target);
  const lw = l && wholeOf(l, "lse", target, "logs");
  const original = ow;
  const shared = lw !== undefined && lw.buffer === ow.buffer;
  if (shared) {
    const apart = memory.scratch("storage", "apart out", ow.size);
    commands.copy(bindingOf(ow), apart, 0);
    ow = { ...ow, buffer: apart, offset: 0 };
  }
  commands.dispatch({
    shader: shader("merge end", out.dtype as FloatDType, mergeEndShader),
    work,
    groups,
    params: params(o, ow, l, lw, l !== undefined),
    bindings: { 1: sums, 7: bindingOf(ow), 8: lw ? bindingOf(lw) : whole(memory.scratch("storage", "no lse", 16)) },
  });
  if (shared) commands.copy({ buffer: ow.buffer!, offset: 0, size: ow.size }, original.buffer!, original.offset);
}
