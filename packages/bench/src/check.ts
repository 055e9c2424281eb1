/** The output of a timed kernel, held to the float64 oracle: a few rows, as whole outputs would take hours. */
import { checkAgainstOracle, type Tensor } from "@tessera/core";
import { type Cut, hostRows } from "./arena.js";
import type { AttentionCase, Extra } from "./case.js";
import type { Check, Shape } from "./result.js";

interface Row {
  readonly b: number;
  readonly i: number;
  readonly h: number;
}

/** First and last of everything, and the middle. */
export function rowsToCheck({ batch, heads, queries }: Shape): Row[] {
  const rows: Row[] = [
    { b: 0, i: queries - 1, h: 0 },
    { b: batch - 1, i: queries >> 1, h: heads - 1 },
    { b: batch >> 1, i: queries - 1, h: heads >> 1 },
    { b: 0, i: 0, h: heads - 1 },
    { b: batch - 1, i: Math.floor(queries / 3), h: Math.floor(heads / 3) },
  ];
  const seen = new Set<string>();
  return rows.filter(({ b, i, h }) => !seen.has(`${b} ${i} ${h}`) && seen.add(`${b} ${i} ${h}`));
}

/** Rows that a kernel doesn't write shall not hold what another wrote there. */
export function spoil(out: Tensor, shape: Shape): void {
  for (const { b, i } of rowsToCheck(shape)) {
    const row = rowOf(out, shape, b, i);
    const data = out.dtype === "f32" ? new Float32Array(row.size).fill(Number.NaN) : new Uint16Array(row.size).fill(-1);
    row.write(data as never);
    row.dispose();
  }
}

function rowOf(out: Tensor, { batch, heads, queries, dim }: Shape, b: number, i: number): Tensor {
  const flat = out.reshape([batch * queries, heads, dim]);
  const row = flat.slice(0, b * queries + i, b * queries + i + 1);
  flat.dispose();
  return row;
}

export async function checkRows(
  one: AttentionCase,
  { q, k, v }: { readonly q: Cut; readonly k: Cut; readonly v: Cut },
  out: Tensor,
  extra: Extra,
): Promise<Check> {
  const { shape } = one;
  const { heads, kvHeads, queries, keys, dim } = shape;
  const rows = rowsToCheck(shape);
  let ok = true;
  let worst = { maxError: 0, bound: 1 };
  for (const { b, i, h } of rows) {
    const kvHead = Math.floor(h / (heads / kvHeads));
    const inKeys = Array.from({ length: keys }, (_, j) => b * keys + j);
    const values = await rowOf(out, shape, b, i).readFloat32();
    const options = {
      q: hostRows(q, [b * queries + i], heads * dim, h * dim, dim),
      k: hostRows(k, inKeys, kvHeads * dim, kvHead * dim, dim),
      v: hostRows(v, inKeys, kvHeads * dim, kvHead * dim, dim),
      ...(one.causal && { causal: true, queryOffset: [i + keys - queries] }),
      ...extra.row?.(b, i, h),
    };
    const verdict = checkAgainstOracle({
      options: options as never,
      out: values.slice(h * dim, (h + 1) * dim),
    });
    ok &&= verdict.ok;
    if (!(verdict.maxError / verdict.bound <= worst.maxError / worst.bound)) worst = verdict;
  }
  // JSON has no infinity; an error that is none of its numbers is "as wrong as can be".
  const maxError = Number.isFinite(worst.maxError) ? worst.maxError : Number.MAX_VALUE;
  return { ok, rows: rows.length, maxError, bound: worst.bound };
}
