/** Rotary embedding of one row (Su et al., 2021): pair i turns by position · scale · theta^(-2i/dims). */
import type { RopeDesc } from "../backend.js";

/** Rotates `dims` leading values of the row in place. */
export type Rotate = (row: Float64Array, position: number) => void;

/** A rotation for rows of `dim` values. */
export function rotationOf(rope: RopeDesc, dim: number): Rotate {
  const dims = rope.dims || dim;
  const half = dims / 2;
  const scale = rope.scale || 1;
  const frequencies = Float64Array.from({ length: half }, (_, i) => scale * rope.theta ** ((-2 * i) / dims));
  const [step, other] = rope.pairing === "half" ? [1, half] : [2, 1];
  return (row, position) => {
    for (let i = 0; i < half; i++) {
      const angle = position * frequencies[i]!;
      const cos = Math.cos(angle);
      const sin = Math.sin(angle);
      const a = i * step;
      const b = a + other;
      const x = row[a]!;
      const y = row[b]!;
      row[a] = x * cos - y * sin;
      row[b] = x * sin + y * cos;
    }
  };
}
