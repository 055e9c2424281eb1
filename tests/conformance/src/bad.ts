/**
 * Descriptors that contradict the contract: each is refused with the right code and a text that names the argument,
 * nothing is written, and the next good call works. `supports` says the same, before anything runs.
 */
import type { BackendContext, TesseraErrorCode } from "@tessera/core";
import { describeProblem } from "./attention-run.js";
import { type AttentionCase, attention } from "./case.js";
import { hostTensor } from "./codec.js";
import type { AttentionDesc, TensorDesc } from "./contract.js";
import { Placement } from "./layout.js";
import { buildProblem } from "./problem.js";
import { isTesseraError, type Recorder, textOf } from "./run.js";

type Mutable = { -readonly [K in keyof AttentionDesc]: AttentionDesc[K] };

export interface BadCase {
  readonly name: string;
  /** The good problem that is spoilt. */
  readonly from: AttentionCase;
  readonly spoil: (desc: Mutable, placement: Placement) => void;
  readonly code: TesseraErrorCode;
  /** What the text has to name. */
  readonly names: RegExp;
  /**
   * What is wrong is what an index tensor holds. Where the host can't read it, the call may run, with the numbers clamped:
   * any result, but no fault and nothing written elsewhere.
   */
  readonly contents?: true;
}

const plain = attention("bad", "", [2, 4, 6, 4, 2, 8]);
const blocks = attention("bad-blocks", "", [1, 2, 4, 2, 1, 32], { types: "f32/q8_0" });
const padded = attention("bad-padded", "", [2, 4, 6, 4, 2, 8], { lengthsK: [3, 6], lengthsQ: [4, 2] });
const packed = attention("bad-packed", "", [2, 4, 6, 4, 2, 8], { packedQ: [1, 4], packedK: [6, 2] });
const paged = attention("bad-paged", "", [2, 4, 32, 4, 2, 8], { lengthsK: [20, 32], pages: { size: 16 } });

type Name = "q" | "k" | "v" | "out" | "lse";
const change = (name: Name, with_: (t: TensorDesc) => Partial<TensorDesc>) => (d: Mutable) => {
  const t = d[name] as TensorDesc;
  d[name] = { ...t, ...with_(t) };
};
const shape = (name: Name, dim: number, extent: number) =>
  change(name, (t) => ({ shape: t.shape.map((n, i) => (i === dim ? extent : n)) }));
const stride = (name: Name, dim: number, step: number) =>
  change(name, (t) => ({ strides: t.strides.map((n, i) => (i === dim ? step : n)) }));
const ints = (values: number[], extents = [values.length]) => hostTensor("i32", extents, values);
const floats = (values: number[], extents = [values.length]) => hostTensor("f32", extents, values);

function bad(
  name: string,
  from: AttentionCase,
  names: RegExp,
  spoil: BadCase["spoil"],
  code: TesseraErrorCode = "invalid-argument",
): BadCase {
  return { name: `bad/${name}`, from, spoil, code, names };
}

const badContents = (name: string, from: AttentionCase, names: RegExp, spoil: BadCase["spoil"]): BadCase => ({
  ...bad(name, from, names, spoil),
  contents: true,
});

export const badCases: readonly BadCase[] = [
  bad(
    "q-dtype",
    plain,
    /\bq\b.*dtype/,
    change("q", () => ({ dtype: "i32" })),
  ),
  bad(
    "k-dtype",
    plain,
    /\bk\b.*dtype/,
    change("k", () => ({ dtype: "bool" })),
  ),
  bad(
    "out-dtype",
    plain,
    /\bout\b.*dtype/,
    change("out", () => ({ dtype: "i32" })),
  ),
  bad(
    "lse-dtype",
    plain,
    /\blse\b.*dtype/,
    change("lse", () => ({ dtype: "f16" })),
  ),
  bad(
    "q-rank",
    plain,
    /\bq\b.*rank/,
    change("q", (t) => ({ shape: t.shape.slice(1), strides: t.strides.slice(1) })),
  ),
  bad(
    "k-rank",
    plain,
    /\bk\b.*rank/,
    change("k", (t) => ({ shape: t.shape.slice(1), strides: t.strides.slice(1) })),
  ),
  bad("head-dim", plain, /\bk\b.*head dim/, shape("k", 3, 7)),
  bad("head-dim-0", plain, /head dim|shape/, (d) => {
    for (const name of ["q", "k"] as const) shape(name, 3, 0)(d);
  }),
  bad("head-ratio", plain, /multiple of/, (d) => {
    for (const name of ["q", "out"] as const) shape(name, 2, 3)(d);
    shape("lse", 1, 3)(d);
  }),
  bad("key-count", plain, /\bv\b/, shape("v", 1, 5)),
  bad("batch", plain, /\bk\b/, (d) => {
    for (const name of ["k", "v"] as const) shape(name, 0, 1)(d);
  }),
  bad("out-shape", plain, /\bout\b/, shape("out", 1, 3)),
  bad("out-dim", plain, /\bout\b/, shape("out", 3, 7)),
  bad("lse-shape", plain, /\blse\b/, shape("lse", 2, 3)),
  bad("q-last-stride", plain, /\bq\b.*stride/, stride("q", 3, 2)),
  bad("k-last-stride", plain, /\bk\b.*stride/, stride("k", 3, 2)),
  bad("v-last-stride", plain, /\bv\b.*stride/, stride("v", 3, 2)),
  bad("negative-stride", plain, /\bk\b.*stride/, stride("k", 1, -16)),
  bad("out-stride-0", plain, /\bout\b.*stride/, stride("out", 1, 0)),
  bad("q-out-of-bounds", plain, /\bq\b/, stride("q", 0, 100000)),
  bad("k-out-of-bounds", plain, /\bk\b/, stride("k", 0, 100000)),
  bad("out-out-of-bounds", plain, /\bout\b/, stride("out", 0, 100000)),
  bad("block-stride", blocks, /\bk\b.*stride/, stride("k", 1, 33)),
  bad("block-dim", blocks, /32/, (d) => {
    for (const name of ["q", "k"] as const) shape(name, 3, 24)(d);
  }),
  bad("scale-nan", plain, /scale/, (d) => {
    d.scale = Number.NaN;
  }),
  bad("scale-infinite", plain, /scale/, (d) => {
    d.scale = Number.POSITIVE_INFINITY;
  }),
  bad("softcap-negative", plain, /softcap/, (d) => {
    d.softcap = -1;
  }),
  bad("softcap-nan", plain, /softcap/, (d) => {
    d.softcap = Number.NaN;
  }),
  bad("softcap-infinite", plain, /softcap/, (d) => {
    d.softcap = Number.POSITIVE_INFINITY;
  }),
  bad("window-left", plain, /window/, (d) => {
    d.window = [-2, 0];
  }),
  bad("window-right", plain, /window/, (d) => {
    d.window = [0, -5];
  }),
  bad("splits-negative", plain, /splits/i, (d) => {
    d.numSplits = -1;
  }),
  bad("kernel", plain, /kernel.*no-such-kernel|no-such-kernel.*kernel/s, (d) => {
    d.kernel = "no-such-kernel";
  }),
  bad("offset-and-align", plain, /query_?offset|align/i, (d, p) => {
    d.queryOffset = p.plain(ints([0, 0]));
    d.align = "top-left";
  }),
  bad("offset-shape", plain, /query_?offset/i, (d, p) => {
    d.queryOffset = p.plain(ints([0, 0, 0]));
  }),
  bad("slopes-shape", plain, /alibi/i, (d, p) => {
    d.alibiSlopes = p.plain(floats([1, 1]));
  }),
  bad("slopes-dtype", plain, /alibi/i, (d, p) => {
    d.alibiSlopes = p.plain(ints([1, 1, 1, 1]));
  }),
  bad("sinks-shape", plain, /sinks/, (d, p) => {
    d.sinks = p.plain(floats([1]));
  }),
  bad("bias-shape", plain, /bias/, (d, p) => {
    d.bias = p.plain(floats(Array(20).fill(0), [1, 1, 4, 5]));
  }),
  bad("bias-heads", plain, /bias/, (d, p) => {
    d.bias = p.plain(floats(Array(48).fill(0), [1, 2, 4, 6]));
  }),
  bad("bias-dtype", plain, /bias/, (d, p) => {
    d.bias = p.plain(ints(Array(24).fill(0), [1, 1, 4, 6]));
  }),
  bad("mask-dtype", plain, /mask/, (d, p) => {
    d.mask = p.plain(floats(Array(24).fill(1), [1, 1, 4, 6]));
  }),
  bad("mask-shape", plain, /mask/, (d, p) => {
    d.mask = p.plain(hostTensor("bool", [1, 1, 3, 6], Array(18).fill(1)));
  }),
  bad("scale-of-f16", plain, /k_?scale/i, (d, p) => {
    d.kScale = p.plain(floats([1, 1]));
  }),
  badContents("lengths-k-beyond", padded, /seq_?lens_?k/i, (d, p) => {
    d.seqLensK = p.plain(ints([3, 7]));
  }),
  badContents("lengths-k-negative", padded, /seq_?lens_?k/i, (d, p) => {
    d.seqLensK = p.plain(ints([-1, 3]));
  }),
  badContents("lengths-q-beyond", padded, /seq_?lens_?q/i, (d, p) => {
    d.seqLensQ = p.plain(ints([4, 5]));
  }),
  bad("lengths-shape", padded, /seq_?lens_?k/i, (d, p) => {
    d.seqLensK = p.plain(ints([3]));
  }),
  badContents("packed-start", packed, /cu_?seq_?lens_?q/i, (d, p) => {
    d.cuSeqLensQ = p.plain(ints([1, 1, 5]));
  }),
  badContents("packed-decreasing", packed, /cu_?seq_?lens_?k/i, (d, p) => {
    d.cuSeqLensK = p.plain(ints([0, 9, 8]));
  }),
  badContents("packed-end", packed, /cu_?seq_?lens_?k/i, (d, p) => {
    d.cuSeqLensK = p.plain(ints([0, 6, 9]));
  }),
  bad("packed-and-padded", packed, /seq_?lens_?q/i, (d, p) => {
    d.seqLensQ = p.plain(ints([1, 1]));
  }),
  badContents("page-id-beyond", paged, /page_?table/i, (d, p) => {
    d.pageTable = p.plain(ints([0, 1, 2, 1000], [2, 2]));
  }),
  badContents("page-id-negative", paged, /page_?table/i, (d, p) => {
    d.pageTable = p.plain(ints([-1, 1, 2, 3], [2, 2]));
  }),
  bad("page-table-batch", paged, /page_?table/i, (d, p) => {
    d.pageTable = p.plain(ints([0, 1], [1, 2]));
  }),
  bad("paged-without-lengths", paged, /seq_?lens_?k/i, (d) => {
    d.seqLensK = undefined;
  }),
];

export async function runBad(c: BadCase, context: BackendContext, record: Recorder): Promise<void> {
  const problem = buildProblem(c.from);
  const placement = new Placement(context, "contiguous");
  const fail = (check: "error" | "support" | "memory", message: string) =>
    record.fail("contiguous", "auto", check, message);
  try {
    const good = describeProblem(c.from, problem, placement) as AttentionDesc;
    const desc: Mutable = { ...good };
    c.spoil(desc, placement);
    const told = await outcome(() => context.attention(desc));
    if (told === null && c.contents && !context.device.caps.hostMemory) {
      await placement.result("out"); // with the canaries around it
      await placement.inputsIntact();
      const next = await outcome(() => context.attention(good));
      return next === null ? record.pass("auto") : fail("error", `the next good call failed: ${textOf(next)}`);
    }
    if (told === null) return fail("error", `attention accepted it, must refuse with ${c.code}`);
    if (!isTesseraError(told)) return fail("error", `threw ${textOf(told)}, must be a TesseraError`);
    if (told.code !== c.code) return fail("error", `code is ${told.code}, must be ${c.code} (${told.message})`);
    if (!c.names.test(told.message)) return fail("error", `text doesn't match ${c.names}: ${told.message}`);
    let support: ReturnType<BackendContext["supports"]> | null = null;
    const threw = await outcome(async () => {
      support = context.supports(desc);
    });
    if (threw !== null) return fail("support", `supports() threw ${textOf(threw)}`);
    const answer = support as unknown as { supported: boolean; code?: string };
    if (answer.supported) return fail("support", `supports() says yes, attention says ${told.code}`);
    if (answer.code !== told.code) return fail("support", `supports() says ${answer.code}, attention ${told.code}`);
    if ((await placement.result("out")).some((byte) => byte !== 0xff))
      return fail("memory", "refused, but wrote to out");
    const after = await outcome(() => context.attention(good));
    if (after !== null) return fail("error", `the next good call failed: ${textOf(after)}`);
    record.pass("auto");
  } catch (error) {
    fail("error", textOf(error));
  } finally {
    placement.dispose();
  }
}

async function outcome(call: () => Promise<void>): Promise<unknown> {
  try {
    await call();
    return null;
  } catch (error) {
    return error ?? new Error("threw nothing");
  }
}
