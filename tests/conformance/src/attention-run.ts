import type { KernelInfo } from "@tessera/core";
import type { AttentionCase } from "./case.js";
import { decode, type HostTensor } from "./codec.js";
import { describe, sameBytes, worst } from "./compare.js";
import type { AttentionDesc } from "./contract.js";
import { solveFlushed } from "./flushed.js";
import { type LayoutName, Placement } from "./layout.js";
import { buildProblem, type Problem } from "./problem.js";
import { withRoundedQ } from "./rounded-q.js";
import { type Cell, isTesseraError, textOf } from "./run.js";
import { solve, type Truth } from "./truth.js";

/** What the options of a case say, as a descriptor without tensors. */
export function optionsOf(c: AttentionCase): Partial<AttentionDesc> {
  const packed = c.packedQ !== undefined;
  const overlaid = c.bias !== undefined || c.mask !== undefined;
  return {
    ...(c.scale !== undefined && { scale: c.scale }),
    ...(c.softcap !== undefined && { softcap: c.softcap }),
    ...(c.causal !== undefined && { causal: c.causal }),
    ...(c.align !== undefined && { align: c.align }),
    ...(c.window !== undefined && { window: c.window }),
    ...(c.splits !== undefined && { numSplits: c.splits }),
    // A bias or mask over packed sequences is as large as the longest one; every second case without one tells it too.
    ...(packed && (overlaid || c.name.length % 2 === 0) && { maxSeqLenQ: c.queries }),
    ...(c.packedK && (overlaid || c.name.length % 2 === 0) && { maxSeqLenK: c.keys }),
  };
}

const small = [
  ["alibi", "alibiSlopes"],
  ["sinks", "sinks"],
  ["queryOffset", "queryOffset"],
  ["seqLensQ", "seqLensQ"],
  ["seqLensK", "seqLensK"],
  ["cuSeqLensQ", "cuSeqLensQ"],
  ["cuSeqLensK", "cuSeqLensK"],
  ["kScale", "kScale"],
  ["vScale", "vScale"],
] as const;

/** Places a problem in memory. Null if the layout means nothing for it. */
export function describeProblem(
  c: AttentionCase,
  problem: Problem,
  placement: Placement,
): Omit<AttentionDesc, "kernel"> | null {
  const { q, k, v, bias, mask } = problem;
  const inputs = placement.tensors({ q, k, v, ...(bias && { bias }), ...(mask && { mask }) });
  if (!inputs) return null;
  const rest: Record<string, unknown> = {};
  for (const [from, to] of small) if (problem[from]) rest[to] = placement.plain(problem[from]);
  if (problem.pageTable) rest.pageTable = placement.table(problem.pageTable);
  return { ...inputs, ...rest, ...optionsOf(c), ...outputs(c, problem, placement) } as AttentionDesc;
}

function outputs(c: AttentionCase, problem: Problem, placement: Placement): Pick<AttentionDesc, "out" | "lse"> {
  return {
    out: placement.output("out", c.types.out, problem.outShape),
    ...(c.wantLse && { lse: placement.output("lse", "f32", problem.lseShape) }),
  };
}

/** How many outputs a case has in all; compared cheaply before anything is decoded. */
interface Results {
  readonly out: Uint8Array;
  readonly lse: Uint8Array | null;
}

async function collect(c: AttentionCase, placement: Placement): Promise<Results> {
  return { out: await placement.result("out"), lse: c.wantLse ? await placement.result("lse") : null };
}

const same = (a: Results, b: Results) =>
  sameBytes(a.out, b.out) && (a.lse === null || b.lse === null || sameBytes(a.lse, b.lse));

/** The text of the first thing that is wrong with a result, or null. */
export function judge(c: AttentionCase, problem: Problem, truth: Truth, results: Results): string | null {
  const out = worst(results.out, c.types.out, truth.out, truth.outBound);
  if (out) return describe("out", out, problem.outShape);
  const lse = results.lse && worst(results.lse, "f32", truth.lse, truth.lseBound);
  return lse ? describe("lse", lse, problem.lseShape) : null;
}

export async function runAttention(c: AttentionCase, cell: Cell): Promise<void> {
  const { context, record } = cell;
  if (c.exactNaN && !cell.exactNaN)
    return record.skip("poison that other queries see: only exact on the CPU, in the reference and on WebGPU");
  if (
    c.spread &&
    (context.device.caps.hostMemory ? 0 : context.device.memoryBytes) > 0 &&
    context.device.memoryBytes < 12e9
  ) {
    return record.skip("a tensor larger than the device's memory");
  }
  const problem = buildProblem(c);
  const truth = truths(c, problem);
  if (c.spread) return runSpread(c, problem, truth, cell);

  for (const layout of cell.layouts) {
    if (c.layouts && !c.layouts.includes(layout)) continue;
    const placement = new Placement(context, layout);
    try {
      const desc = describeProblem(c, problem, placement);
      if (!desc) continue;
      if (layout === cell.layouts[0]) checkFreeChoice(c, desc, cell);
      for (const kernel of cell.kernels) {
        const fresh = { ...desc, ...outputs(c, problem, placement), kernel: kernel.name };
        await runCell(c, problem, truth, placement, fresh, layout, kernel, cell);
      }
      await placement.inputsIntact();
    } catch (error) {
      record.fail(layout, "-", "memory", textOf(error));
    } finally {
      placement.dispose();
    }
  }
}

type TruthOf = (kernel: KernelInfo) => Truth;

/** What a variant is held to: the truth, that of a rounded Q, or that without the smallest numbers. */
function truths(c: AttentionCase, problem: Problem): TruthOf {
  const exact = solve(problem, c.types);
  let rounded: Truth | undefined;
  let flushed: Truth | undefined;
  return ({ roundsQ, flushes }) => {
    if (roundsQ) {
      rounded ??= solve(withRoundedQ(problem), c.types);
      return rounded;
    }
    if (!flushes) return exact;
    flushed ??= solveFlushed(problem, c.types);
    return flushed;
  };
}

/** With no kernel named: a complete back end declines nothing, and explains what it would run. */
function checkFreeChoice(c: AttentionCase, desc: AttentionDesc, { context, record, complete }: Cell): void {
  const support = context.supports(desc);
  // Splitting a problem is up to the variant; all else is not.
  if (!support.supported) {
    if (complete && !(c.splits !== undefined && c.splits > 1)) {
      record.fail("-", "auto", "support", `declined: ${support.reason || "(no reason)"}`);
    }
    return;
  }
  const { kernel, splits } = context.explain(desc);
  const row = context.kernels().find((info) => info.name === kernel);
  if (!row?.usable)
    record.fail("-", "auto", "support", `explain names "${kernel}", which kernels() doesn't list as usable`);
  else if (row.roundsQ) record.fail("-", "auto", "support", `explain names "${kernel}", which rounds q`);
  else if (!(splits >= 1)) record.fail("-", "auto", "support", `explain says ${splits} splits`);
  else record.pass("auto");
}

async function runCell(
  c: AttentionCase,
  problem: Problem,
  truth: TruthOf,
  placement: Placement,
  desc: AttentionDesc,
  layout: LayoutName,
  kernel: KernelInfo,
  cell: Cell,
): Promise<void> {
  const { context, record } = cell;
  const support = context.supports(desc);
  if (!support.supported) {
    if (support.reason === "") return record.fail(layout, kernel.name, "support", "declined without a reason");
    const error = await context.attention(desc).then(
      () => null,
      (reason) => reason,
    );
    if (!isTesseraError(error) || error.code !== support.code) {
      const text = error === null ? "computed it" : `said ${textOf(error)}`;
      return record.fail(layout, kernel.name, "support", `supports() said ${support.code}, attention ${text}`);
    }
    const { out } = await collect(c, placement);
    if (out.some((byte) => byte !== 0xff))
      return record.fail(layout, kernel.name, "memory", "declined, but wrote to out");
    if (isMandatory(c, kernel, cell)) return record.fail(layout, kernel.name, "support", `declined: ${support.reason}`);
    return record.unsupported(layout, kernel.name, support.reason);
  }

  let results: Results;
  try {
    await context.attention(desc);
    results = await collect(c, placement);
  } catch (error) {
    const check = textOf(error).includes("canary") ? "memory" : isTesseraError(error) ? "support" : "error";
    return record.fail(layout, kernel.name, check, `supports() said yes, attention: ${textOf(error)}`);
  }
  const wrong = judge(c, problem, truth(kernel), results);
  if (wrong) return record.fail(layout, kernel.name, "result", wrong);

  if (layout === cell.layouts[0]) {
    const again = { ...desc, ...outputs(c, problem, placement) };
    await context.attention(again);
    if (!same(results, await collect(c, placement))) {
      return record.fail(layout, kernel.name, "repeat", "a second run gave other bits");
    }
    const leak = await checkIndependence(c, problem, desc, layout, results, cell);
    if (leak) return record.fail(layout, kernel.name, "independence", leak);
  }
  record.pass(kernel.name);
}

/** Prefill variants of a complete back end take everything but a number of splits. */
function isMandatory(c: AttentionCase, kernel: KernelInfo, { complete }: Cell): boolean {
  return complete && kernel.family === "prefill" && !(c.splits !== undefined && c.splits > 1);
}

/** One batch entry keeps its bits when all others become NaN. */
async function checkIndependence(
  c: AttentionCase,
  problem: Problem,
  desc: AttentionDesc,
  layout: LayoutName,
  results: Results,
  { context }: Cell,
): Promise<string | null> {
  if (problem.batch < 2 || problem.batch > 64 || c.pages?.share) return null;
  const keep = c.name.length % problem.batch;
  const altered = onlyEntry(problem, keep);
  const placement = new Placement(context, layout);
  try {
    const other = describeProblem(c, altered, placement);
    if (!other) return null;
    await context.attention({ ...other, kernel: desc.kernel });
    const now = await collect(c, placement);
    const elements = { out: decode(results.out, c.types.out), now: decode(now.out, c.types.out) };
    for (let i = 0; i < (problem.queryCounts[keep] as number); i++) {
      const width = problem.heads * problem.valueDim;
      const at = problem.queryRow(keep, i) * width;
      for (let x = at; x < at + width; x++) {
        if (!Object.is(elements.out[x], elements.now[x])) {
          return `entry ${keep}, query ${i}: ${elements.out[x]} became ${elements.now[x]} when other entries became NaN`;
        }
      }
    }
    return null;
  } finally {
    placement.dispose();
  }
}

/** The problem with the q, k and v rows of all entries but one set to NaN. */
function onlyEntry(problem: Problem, keep: number): Problem {
  const rowsQ = new Set<number>();
  const rowsK = new Set<number>();
  for (let i = 0; i < (problem.queryCounts[keep] as number); i++) rowsQ.add(problem.queryRow(keep, i));
  for (let j = 0; j < (problem.keyCounts[keep] as number); j++) rowsK.add(problem.keyRow(keep, j));
  const blank = (tensor: HostTensor, rows: Set<number>): HostTensor => {
    const bytes = tensor.bytes.slice();
    const count = tensor.shape.slice(0, -2).reduce((a, b) => a * b, 1);
    const size = count > 0 ? bytes.length / count : 0;
    for (let row = 0; row < count; row++) if (!rows.has(row)) bytes.fill(0xff, row * size, (row + 1) * size);
    return { ...tensor, bytes };
  };
  return { ...problem, q: blank(problem.q, rowsQ), k: blank(problem.k, rowsK), v: blank(problem.v, rowsK) };
}

/** Tensors whose elements lie further apart than 32 bits can count. */
async function runSpread(c: AttentionCase, problem: Problem, truth: TruthOf, cell: Cell): Promise<void> {
  const { context, record } = cell;
  const placement = new Placement(context, "contiguous");
  try {
    const desc = describeProblem(c, problem, placement) as AttentionDesc;
    const spread: Record<string, unknown> = {};
    for (const [name, stride] of Object.entries(c.spread ?? {})) {
      const tensor = problem[name as "q"] as HostTensor | undefined;
      spread[name] = tensor
        ? placement.spread(tensor, stride)
        : placement.spreadOutput(
            name,
            name === "lse" ? "f32" : c.types.out,
            name === "lse" ? problem.lseShape : problem.outShape,
            stride,
          );
    }
    for (const kernel of cell.kernels) {
      const full = { ...desc, ...spread, kernel: kernel.name } as AttentionDesc;
      const support = context.supports(full);
      if (!support.supported) {
        record.unsupported("spread", kernel.name, support.reason);
        continue;
      }
      await context.attention(full);
      const wrong = judge(c, problem, truth(kernel), await collect(c, placement));
      if (wrong) record.fail("spread", kernel.name, "result", wrong);
      else record.pass(kernel.name);
    }
  } catch (error) {
    if (isTesseraError(error) && error.code === "out-of-memory")
      record.skip("a tensor larger than this back end can allocate");
    else record.fail("spread", "-", "error", textOf(error));
  } finally {
    placement.dispose();
  }
}
