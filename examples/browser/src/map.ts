/** A picture of one head's attention weights. */
import { decode } from "@tessera/core/web";

export interface Head {
  /** [S, H, D] and [S, Hkv, D], fp16. */
  readonly q: Uint16Array;
  readonly k: Uint16Array;
  /** Natural-log LSE of the head's rows, as the device computed it: with it a weight is exp(score - lse). */
  readonly lse: Float32Array;
  readonly tokens: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly dim: number;
  readonly head: number;
}

export function drawMap(canvas: HTMLCanvasElement, { q, k, lse, tokens, heads, kvHeads, dim, head }: Head): void {
  const [queries, keys] = [decode(q, "f16"), decode(k, "f16")];
  const kvHead = Math.floor(head / (heads / kvHeads));
  canvas.width = tokens;
  canvas.height = tokens;
  const context = canvas.getContext("2d")!;
  const image = context.createImageData(tokens, tokens);
  for (let i = 0; i < tokens; i++) {
    const weights = Array.from({ length: i + 1 }, (_, j) => {
      let score = 0;
      for (let d = 0; d < dim; d++)
        score += queries[(i * heads + head) * dim + d]! * keys[(j * kvHeads + kvHead) * dim + d]!;
      return Math.exp(score / Math.sqrt(dim) - lse[i]!);
    });
    const most = Math.max(...weights);
    for (let j = 0; j < tokens; j++) {
      const share = j <= i ? Math.sqrt(weights[j]! / most) : 0;
      const at = 4 * (i * tokens + j);
      image.data.set([255 - 225 * share, 255 - 190 * share, 255 - 110 * share, 255], at);
    }
  }
  context.putImageData(image, 0, 0);
}
