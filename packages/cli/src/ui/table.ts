/** Columns that line up. The last one isn't padded. */
export function table(rows: readonly (readonly string[])[], indent = ""): string {
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, column) => {
      widths[column] = Math.max(widths[column] ?? 0, cell.length);
    });
  }
  return rows
    .map((row) => indent + row.map((cell, column) => cell.padEnd(widths[column]!)).join("  "))
    .map((line) => `${line.trimEnd()}\n`)
    .join("");
}

export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = count;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function milliseconds(ms: number): string {
  return ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toPrecision(3)} ms`;
}

/** An error against its bound: "3.1e-4". */
export function scientific(value: number): string {
  return value === 0 ? "0" : Number.isFinite(value) ? value.toExponential(2) : String(value);
}
