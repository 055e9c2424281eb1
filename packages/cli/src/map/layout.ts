/** Where things go, in pixels. */
export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface Layout {
  readonly width: number;
  readonly height: number;
  readonly panels: readonly Box[];
  readonly columns: number;
  readonly legend: Box;
}

export const margin = { left: 74, top: 104, right: 104, bottom: 62 };
const gap = { x: 30, y: 36 };

/** Side of one panel, and at most how many cells it can show: the more panels, the smaller. */
export function panelSize(heads: number): { side: number; cells: number } {
  if (heads === 1) return { side: 576, cells: 576 };
  if (heads <= 4) return { side: 340, cells: 340 };
  if (heads <= 9) return { side: 260, cells: 192 };
  if (heads <= 16) return { side: 200, cells: 144 };
  return { side: 132, cells: Math.max(24, Math.floor(Math.sqrt(420_000 / heads))) };
}

/** `width` and `height` in cells. */
export function layOut(heads: number, cells: { readonly width: number; readonly height: number }): Layout {
  const { side } = panelSize(heads);
  // Square cells of a whole number of pixels, where that leaves a panel one can read.
  const longest = Math.max(1, cells.width, cells.height);
  const whole = longest * Math.floor(side / longest);
  const cell = (whole >= 0.75 * side ? whole : side) / longest;
  const width = Math.max(side / 6, cell * cells.width);
  const height = Math.max(side / 12, cell * cells.height);
  const columns = Math.min(heads, heads <= 3 ? heads : heads <= 4 ? 2 : heads <= 9 ? 3 : heads <= 16 ? 4 : 8);
  const rows = Math.ceil(heads / columns);
  const top = margin.top + (heads > 1 ? 24 : 0);
  const panels = Array.from({ length: heads }, (_, n) => ({
    x: margin.left + (n % columns) * (width + gap.x),
    y: top + Math.floor(n / columns) * (height + gap.y),
    width,
    height,
  }));
  const right = margin.left + columns * width + (columns - 1) * gap.x;
  const bottom = top + rows * height + (rows - 1) * gap.y;
  const legendHeight = Math.min(320, Math.max(120, bottom - top));
  return {
    width: right + margin.right,
    height: Math.max(bottom, top + legendHeight) + margin.bottom,
    panels,
    columns,
    legend: { x: right + 34, y: top, width: 14, height: legendHeight },
  };
}

/** Round positions, about `pixels / 56` of them, ending with the last position. */
export function ticks(count: number, pixels: number): number[] {
  if (count <= 1) return count === 1 ? [0] : [];
  const rough = count / Math.max(1, pixels / 56);
  const power = 2 ** Math.ceil(Math.log2(Math.max(1, rough)));
  const step = count > 8 ? power : 1;
  const out: number[] = [];
  for (let at = 0; at < count; at += step) out.push(at);
  const last = count - 1;
  if (last - out.at(-1)! < step * 0.6 && out.length > 1) out.pop();
  if (out.at(-1) !== last) out.push(last);
  return out;
}
