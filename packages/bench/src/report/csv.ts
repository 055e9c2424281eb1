/** All measurements as CSV (RFC 4180), for whoever wants to draw their own. Runs in the page, too. */
import type { ReportModel } from "./model.js";

const columns = [
  ["device", (_, d) => d.label],
  ["backend", (_, d) => d.backend],
  ["arch", (_, d) => d.arch],
  ["file", (_, d) => d.file],
  ["suite", (r) => r.suite],
  ["case", (r) => r.case],
  ["kind", (r) => r.kind],
  ["size", (r) => r.size],
  ["dtype", (r) => r.dtype],
  ["heads", (r) => r.heads],
  ["dim", (r) => r.dim],
  ["kernel", (r) => r.kernel],
  ["splits", (r) => r.splits],
  ["tuned", (r) => r.tuned],
  ["milliseconds", (r) => r.ms],
  ["p25", (r) => r.low],
  ["p75", (r) => r.high],
  ["tflops", (r) => r.tflops],
  ["gbs", (r) => r.gbs],
  ["share_of_ceiling", (r) => r.share],
  ["workspace_bytes", (r) => r.workspace],
  ["allocated_bytes", (r) => r.allocated],
  ["unfused_bytes", (r) => r.unfused],
  ["check", (r) => r.check],
] as const satisfies readonly (readonly [
  string,
  (row: ReportModel["rows"][number], device: ReportModel["devices"][number]) => unknown,
])[];

function field(value: unknown): string {
  const text = value === undefined ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csvOf({ devices, rows }: ReportModel): string {
  const lines = rows.map((row) => columns.map(([, value]) => field(value(row, devices[row.device]!))).join(","));
  return [columns.map(([name]) => name).join(","), ...lines, ""].join("\r\n");
}
