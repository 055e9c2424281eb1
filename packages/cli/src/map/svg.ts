import { hex, palette, ramp, type Scale } from "./colour.js";
import { type Box, type Layout, layOut, margin, ticks } from "./layout.js";
import { encodePng } from "./png.js";
import type { HeadRaster } from "./raster.js";
import { glyph, inContext, type PositionText, xml } from "./text.js";

export interface Picture {
  readonly title: string;
  /** One line: the options that shaped the weights. */
  readonly options: string;
  readonly heads: readonly { readonly head: number; readonly raster: HeadRaster }[];
  readonly scale: Scale;
  readonly queryText?: PositionText | undefined;
  readonly keyText?: PositionText | undefined;
}

// One ink, one ground and one hatch for light pages and for dark ones; the ramp itself reads on both.
const style = `
svg { color-scheme: light dark; --ground: #fff; --ink: #1d1d24; --soft: #6a6a76; --line: #c9c9d2; --hatch: #dedee6; --panel: #f4f4f7 }
@media (prefers-color-scheme: dark) { svg { --ground: #16161b; --ink: #ececf1; --soft: #9d9daa; --line: #43434e; --hatch: #34343e; --panel: #202028 } }
text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--ink) }
.title { font-size: 17px; font-weight: 600 } .soft { fill: var(--soft) } .end { text-anchor: end } .mid { text-anchor: middle }
.mono { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 10px }
image { image-rendering: pixelated } .tick { stroke: var(--soft) } .frame { fill: none; stroke: var(--line) }
.row { fill: transparent } .row:hover { fill: #fff; fill-opacity: .18; stroke: #fff; stroke-width: .6 }
`;

export function drawMap(picture: Picture): string {
  const first = picture.heads[0]!.raster;
  const layout = layOut(picture.heads.length, first);
  const many = picture.heads.length > 1;
  const lines = [picture.options, `${cellNote(first)}${many ? "; bits: mean entropy of a query's weights" : ""}`];
  const longest = Math.max(picture.title.length * 9.6, ...lines.map((line) => line.length * 6.4));
  const width = Math.ceil(Math.max(layout.width, margin.left + longest + 16));
  const height = Math.round(layout.height);
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">`,
    `<title>${xml(picture.title)}</title>`,
    `<desc>${xml(`Attention weights. ${picture.options}`)}</desc>`,
    `<style>${style}</style>`,
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">',
    '<rect width="6" height="6" style="fill: var(--panel)"/><rect width="1.4" height="6" style="fill: var(--hatch)"/></pattern>',
    `<linearGradient id="ramp" x1="0" y1="1" x2="0" y2="0">${stops()}</linearGradient></defs>`,
    '<rect width="100%" height="100%" style="fill: var(--ground)"/>',
    text(margin.left, 38, picture.title, "title"),
    ...lines.map((line, n) => text(margin.left, 60 + 18 * n, line, "soft")),
    ...picture.heads.flatMap((_, n) => panel(picture, layout, n)),
    ...legend(layout.legend, picture.scale),
    "</svg>",
  ];
  return `${parts.join("\n")}\n`;
}

function panel(picture: Picture, layout: Layout, n: number): string[] {
  const { head, raster } = picture.heads[n]!;
  const box = layout.panels[n]!;
  const many = picture.heads.length > 1;
  const leftmost = n % layout.columns === 0;
  const lowest = n + layout.columns >= picture.heads.length;
  const place = `x="${round(box.x)}" y="${round(box.y)}" width="${round(box.width)}" height="${round(box.height)}"`;
  const parts = [`<g id="head${head}">`, `<rect ${place} fill="url(#hatch)"/>`];
  if (raster.pixels.length > 0) {
    const png = encodePng({ width: raster.width, height: raster.height, pixels: raster.pixels, palette: palette() });
    parts.push(`<image ${place} preserveAspectRatio="none" href="data:image/png;base64,${png.toString("base64")}"/>`);
  }
  parts.push(`<rect class="frame" ${place}/>`);
  if (many) {
    const small = box.width < 180;
    parts.push(text(box.x, box.y - 8, `${small ? "" : "head "}${head}`, small ? "" : "strong"));
    parts.push(text(box.x + box.width, box.y - 8, `${raster.entropy.toFixed(1)} bits`, "soft end"));
  }
  // Words at every panel that has room for them, in a dense grid at its corner only.
  const roomy = box.width >= 180 || (leftmost && lowest);
  parts.push(...queryAxis(picture, raster, box, leftmost, leftmost && roomy));
  parts.push(...keyAxis(picture, raster, box, lowest, lowest && roomy));
  // In a large grid a row is too thin to point at, and its titles would outweigh the pictures.
  if (picture.heads.length <= 4) parts.push(...rowTitles(picture, raster, box));
  parts.push("</g>");
  return parts;
}

function queryAxis(picture: Picture, raster: HeadRaster, box: Box, labelled: boolean, named: boolean): string[] {
  const parts: string[] = [];
  const step = box.height / Math.max(1, raster.height * raster.queriesPerCell);
  const everyGlyph = picture.queryText !== undefined && step >= 8.5;
  const at = everyGlyph ? range(raster.queries) : ticks(raster.queries, box.height);
  for (const i of at) {
    const y = box.y + (i + 0.5) * step;
    parts.push(line(box.x - 4, y, box.x, y));
    if (!labelled) continue;
    if (everyGlyph) parts.push(text(box.x - 7, y + 3.5, glyph(picture.queryText?.bytes[i]), "mono end"));
    else parts.push(text(box.x - 7, y + 4, String(i), "soft end"));
  }
  if (named && box.height >= 60) {
    const y = box.y + box.height / 2;
    parts.push(
      `<text class="mid" transform="rotate(-90 ${box.x - 46} ${round(y)})" x="${box.x - 46}" y="${round(y)}">query position</text>`,
    );
  }
  return parts;
}

function keyAxis(picture: Picture, raster: HeadRaster, box: Box, labelled: boolean, named: boolean): string[] {
  const parts: string[] = [];
  const bottom = box.y + box.height;
  const step = box.width / Math.max(1, raster.width * raster.keysPerCell);
  const everyGlyph = picture.keyText !== undefined && step >= 8.5;
  const at = everyGlyph ? range(raster.keys) : ticks(raster.keys, box.width);
  for (const j of at) {
    const x = box.x + (j + 0.5) * step;
    parts.push(line(x, bottom, x, bottom + 4));
    if (!labelled) continue;
    if (everyGlyph) parts.push(text(x, bottom + 15, glyph(picture.keyText?.bytes[j]), "mono mid"));
    else parts.push(text(x, bottom + 18, String(j), "soft mid"));
  }
  if (named) parts.push(text(box.x + box.width / 2, bottom + 38, "key position", "mid"));
  return parts;
}

/** A transparent strip over each row of cells: point at it to read the query and the keys it attends to most. */
function rowTitles(picture: Picture, raster: HeadRaster, box: Box): string[] {
  const step = box.height / raster.height;
  return raster.strongest.map((top, row) => {
    const query = Math.min(raster.queries, (row + 1) * raster.queriesPerCell) - 1;
    const words = picture.queryText === undefined ? "" : `  ${inContext(picture.queryText, query)}`;
    const lines = top.map(({ key, weight }) => {
      const of = picture.keyText === undefined ? "" : `  ${inContext(picture.keyText, key, 8)}`;
      return `${(weight * 100).toFixed(1)} %  key ${key}${of}`;
    });
    const title = [`query ${query}${words}`, ...(lines.length > 0 ? lines : ["sees no key"])].join("\n");
    const place = `x="${round(box.x)}" y="${round(box.y + row * step)}" width="${round(box.width)}" height="${round(step)}"`;
    return `<rect class="row" ${place}><title>${xml(title)}</title></rect>`;
  });
}

function legend(box: Box, scale: Scale): string[] {
  const place = (x: number, y: number, w: number, h: number) => `x="${x}" y="${y}" width="${w}" height="${h}"`;
  const parts = [
    text(box.x, box.y - 10, "weight", ""),
    `<rect ${place(box.x, box.y, box.width, box.height)} fill="url(#ramp)"/>`,
    `<rect class="frame" ${place(box.x, box.y, box.width, box.height)}/>`,
  ];
  const decades = Math.round(-Math.log10(scale.floor));
  for (let d = 0; d <= decades; d++) {
    const y = box.y + (box.height * d) / decades;
    const label = d === 0 ? "1" : d <= 3 ? String(10 ** -d) : `10⁻${"⁰¹²³⁴⁵⁶⁷⁸⁹"[d]}`;
    parts.push(line(box.x + box.width, y, box.x + box.width + 4, y));
    parts.push(text(box.x + box.width + 8, y + 4, d === decades ? `≤ ${label}` : label, "soft"));
  }
  const y = box.y + box.height + 18;
  parts.push(`<rect ${place(box.x, y, box.width, box.width)} fill="url(#hatch)"/>`);
  parts.push(`<rect class="frame" ${place(box.x, y, box.width, box.width)}/>`);
  parts.push(text(box.x + box.width + 8, y + 11, "hidden", "soft"));
  return parts;
}

function cellNote({ queries, keys, queriesPerCell, keysPerCell }: HeadRaster): string {
  const shape = `${queries} ${queries === 1 ? "query" : "queries"} × ${keys} ${keys === 1 ? "key" : "keys"}`;
  if (queriesPerCell === 1 && keysPerCell === 1) return `${shape}; each cell is one weight`;
  return `${shape}; each cell is the largest of ${queriesPerCell} × ${keysPerCell} weights`;
}

function stops(): string {
  const count = 24;
  return range(count + 1)
    .map((i) => `<stop offset="${round(i / count)}" stop-color="${hex(ramp(i / count))}"/>`)
    .join("");
}

function text(x: number, y: number, content: string, classes: string): string {
  const cls = classes === "" ? "" : ` class="${classes}"`;
  return `<text x="${round(x)}" y="${round(y)}"${cls}>${xml(content)}</text>`;
}

function line(x1: number, y1: number, x2: number, y2: number): string {
  return `<line class="tick" x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}"/>`;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

function range(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i);
}
