/** Text into HTML. Everything that comes out of a file goes through `escaped`. */

export function escaped(text: string): string {
  return text.replace(
    /[&<>"']/g,
    (character) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[character]!,
  );
}

export interface Cell {
  readonly text: string;
  /** Right-aligned. */
  readonly number?: boolean;
  readonly class?: string;
}

export type Row = { readonly device?: number; readonly cells: readonly (string | Cell)[] };

/** A table that scrolls by itself, also with the keyboard, where it is wider than the page. */
export function tableOf(caption: string, head: readonly (string | Cell)[], rows: readonly Row[]): string {
  const attributes = (cell: string | Cell) => {
    if (typeof cell === "string") return "";
    const classes = [cell.number ? "number" : "", cell.class ?? ""].filter((name) => name !== "").join(" ");
    return classes === "" ? "" : ` class="${classes}"`;
  };
  const text = (cell: string | Cell) => escaped(typeof cell === "string" ? cell : cell.text);
  const heads = head.map((cell) => `<th scope="col"${attributes(cell)}>${text(cell)}</th>`).join("");
  const body = rows
    .map(({ device, cells }) => {
      const [first, ...others] = cells;
      const data = others.map((cell) => `<td${attributes(cell)}>${text(cell)}</td>`).join("");
      const of = device === undefined ? "" : ` data-device="${device}"`;
      return `<tr${of}><th scope="row">${text(first ?? "")}</th>${data}</tr>`;
    })
    .join("\n");
  return `<div class="scroll" role="region" tabindex="0" aria-label="${escaped(caption)}">
<table><caption>${escaped(caption)}</caption><thead><tr>${heads}</tr></thead><tbody>
${body}
</tbody></table></div>`;
}

const number = (text: string): Cell => ({ text, number: true });

export function three(value: number | undefined): string {
  if (value === undefined || !Number.isFinite(value)) return "";
  if (value === 0) return "0";
  return value >= 1000 ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
}

export function time(ms: number): string {
  return ms < 0.1 ? `${three(ms * 1000)} µs` : ms < 1000 ? `${three(ms)} ms` : `${three(ms / 1000)} s`;
}

export function percent(share: number | undefined): string {
  return share === undefined ? "" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

export const cell = {
  number: (value: number | undefined) => number(three(value)),
  time: (ms: number) => number(time(ms)),
  percent: (share: number | undefined) => number(percent(share)),
  text: number,
};
