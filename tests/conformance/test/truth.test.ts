/** The truth of the table, by hand and against the oracle of @tessera/core: two programs, one definition. */
import { type OracleOptions, oracle } from "@tessera/core";
import { expect, it } from "vitest";
import { optionsOf } from "../src/attention-run.js";
import { type AttentionCase, attention } from "../src/case.js";
import { type HostTensor, hostTensor } from "../src/codec.js";
import { cases } from "../src/index.js";
import { buildProblem, type Problem } from "../src/problem.js";
import { solve } from "../src/truth.js";

const solved = (c: AttentionCase, with_: Partial<Problem> = {}) => solve({ ...buildProblem(c), ...with_ }, c.types);

it("two keys of equal score: the mean, and lse = s + ln 2", () => {
  const c = attention("by-hand", "", [1, 1, 2, 1, 1, 1], { scale: 1 });
  const t = (values: number[], shape: number[]) => hostTensor("f32", shape, values);
  const with_ = { q: t([2], [1, 1, 1, 1]), k: t([3, 3], [1, 2, 1, 1]), v: t([1, 5], [1, 2, 1, 1]) };
  const { out, lse } = solved(c, with_);
  expect(out[0]).toBeCloseTo(3, 12);
  expect(lse[0]).toBeCloseTo(6 + Math.LN2, 12);
});

it("rows of a causal 2 x 5 see 4 and 5 keys; of a 5 x 2, rows 0-2 see none", () => {
  // Q is 0, so out is the mean of V, and lse the logarithm of the number of keys.
  const count = (sq: number, sk: number, align?: "top-left") => {
    const c = attention("causal-count", "", [1, sq, sk, 1, 1, 4], {
      input: "zeros",
      causal: true,
      ...(align && { align }),
    });
    return [...solved(c).lse].map((x) => Math.round(Math.exp(x)));
  };
  expect(count(2, 5)).toEqual([4, 5]);
  expect(count(5, 2)).toEqual([0, 0, 0, 1, 2]);
  expect(count(2, 5, "top-left")).toEqual([1, 2]);
});

it("a cap of 1 under causality leaks nothing: row 0 is V's row 0 exactly", () => {
  const c = attention("cap-leak", "", [1, 2, 2, 1, 1, 8], { softcap: 1, causal: true, input: "steps" });
  expect([...solved(c).out.subarray(0, 8)]).toEqual(Array(8).fill(1));
});

it("a sink joins the denominator only", () => {
  const c = attention("sink-by-hand", "", [1, 1, 1, 1, 1, 2], { input: "zeros", sinks: [0] });
  const problem = buildProblem(c);
  const { out, lse } = solve(problem, c.types);
  expect(out[0]).toBeCloseTo((problem.v.values[0] as number) / 2, 12);
  expect(lse[0]).toBeCloseTo(Math.LN2, 12);
});

const host = (tensor: HostTensor) => {
  const { dtype, shape, bytes } = tensor;
  const { buffer, byteOffset, length } = bytes.slice();
  if (dtype === "f32") return { data: new Float32Array(buffer, byteOffset, length / 4), dtype, shape };
  if (dtype === "i32") return { data: new Int32Array(buffer, byteOffset, length / 4), dtype, shape };
  if (dtype === "f16" || dtype === "bf16")
    return { data: new Uint16Array(buffer, byteOffset, length / 2), dtype, shape };
  return { data: new Uint8Array(buffer, byteOffset, length), dtype, shape };
};

it("agrees with the oracle of @tessera/core on every attention case", { timeout: 120_000 }, () => {
  let compared = 0;
  for (const c of cases) {
    if (c.kind !== "attention" || c.level !== "quick") continue;
    const p = buildProblem(c);
    const truth = solve(p, c.types);
    const options = {
      q: host(p.q),
      k: host(p.k),
      v: host(p.v),
      ...optionsOf(c),
      ...(p.bias && { bias: host(p.bias) }),
      ...(p.mask && { mask: host(p.mask) }),
      ...(p.alibi && { alibiSlopes: [...p.alibi.values] }),
      ...(p.sinks && { sinks: [...p.sinks.values] }),
      ...(p.queryOffset && { queryOffset: [...p.queryOffset.values] }),
      ...(p.seqLensQ && { seqLensQ: [...p.seqLensQ.values] }),
      ...(p.seqLensK && { seqLensK: [...p.seqLensK.values] }),
      ...(p.cuSeqLensQ && { cuSeqLensQ: [...p.cuSeqLensQ.values] }),
      ...(p.cuSeqLensK && { cuSeqLensK: [...p.cuSeqLensK.values] }),
      ...(p.pageTable && { pageTable: host(p.pageTable) }),
      ...(p.kScale && { kScale: [...p.kScale.values] }),
      ...(p.vScale && { vScale: [...p.vScale.values] }),
    };
    // What only the contract has: a number of splits, and how long packed sequences are.
    const { numSplits: _, maxSeqLenQ: __, maxSeqLenK: ___, ...asked } = options;
    const other = oracle(asked as unknown as OracleOptions);
    const close = (a: Float64Array, b: Float64Array, what: string) => {
      expect(a.length, `${c.name} ${what}`).toBe(b.length);
      for (let i = 0; i < a.length; i++) {
        const [x, y] = [a[i] as number, b[i] as number];
        const same = Number.isFinite(x) ? Math.abs(x - y) <= 1e-9 * (1 + Math.abs(x)) : x === y || !Number.isFinite(y);
        if (!same) throw new Error(`${c.name}: ${what}[${i}] is ${x} here, ${y} there`);
      }
    };
    close(truth.out, other.out, "out");
    close(truth.lse, other.lse, "lse");
    compared++;
  }
  expect(compared).toBeGreaterThan(300);
});
