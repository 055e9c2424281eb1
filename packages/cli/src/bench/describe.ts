import type { Ceiling, DeviceResult, Measurement, ResultFile } from "@tessera/bench";
import { bytes, milliseconds, table } from "../ui/table.js";

const percent = (share: number) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
const three = (value: number) => (value >= 1000 ? Math.round(value).toString() : value.toPrecision(3));

function time(ms: number): string {
  return ms < 0.1 ? `${three(ms * 1000)} µs` : milliseconds(ms);
}

/** Against the ceiling that this kind of work runs into. */
function rate({ kind, flops, bytes: moved, median, dtype }: Measurement, { ceilings }: DeviceResult): [string, string] {
  const decode = kind === "decode" && moved !== undefined;
  if (!decode && flops === undefined) return ["", ""];
  const value = decode ? moved / median / 1e6 : flops! / median / 1e9;
  const ceiling = decode
    ? (ceilings.read ?? ceilings.copy)
    : dtype?.q === "f32"
      ? ceilings.matmul32
      : ceilings.matmul16;
  return [`${three(value)} ${decode ? "GB/s" : "TFLOP/s"}`, ceiling ? percent(value / ceiling.value) : ""];
}

function ceilingText(name: string, ceiling: Ceiling | undefined): string {
  return ceiling ? `  ${name.padEnd(8)} ${three(ceiling.value)} ${ceiling.unit}  (${ceiling.method})\n` : "";
}

/** A run for people. */
export function describeRun(result: ResultFile, file: string | undefined): string {
  let text = "";
  for (const device of result.devices) {
    const { key, name, arch, threads, ceilings, state } = device;
    text += `${key}: ${name} (${arch}${threads ? `, ${threads} threads` : ""})${state === "complete" ? "" : `: ${state}`}\n`;
    text += ceilingText("copy", ceilings.copy) + ceilingText("read", ceilings.read);
    text += ceilingText("matmul16", ceilings.matmul16) + ceilingText("matmul32", ceilings.matmul32);
    const rows = [["suite", "case", "kernel", "median", "spread", "rate", "of ceiling", "check"]];
    for (const one of result.measurements) {
      if (one.device !== key) continue;
      const kernel = `${one.kernel ?? ""}${(one.splits ?? 1) > 1 ? ` ×${one.splits}` : ""}${one.tuned ? " (tuned)" : ""}`;
      if (one.kind === "memory") {
        const { workspace, allocated, unfused } = one.memory!;
        const taken = allocated === undefined ? "" : `, taken ${bytes(allocated)}`;
        rows.push([
          one.suite,
          one.case,
          kernel,
          "",
          "",
          `${bytes(workspace)}${taken} (unfused ${bytes(unfused)})`,
          "",
          "",
        ]);
        continue;
      }
      const check = one.check === undefined ? "" : one.check.ok ? "ok" : "WRONG";
      rows.push([one.suite, one.case, kernel, time(one.median), percent(one.spread), ...rate(one, device), check]);
    }
    if (rows.length > 1) text += `\n${table(rows)}`;
    for (const skipped of result.skipped)
      if (skipped.device === key) text += `not measured: ${skipped.suite}: ${skipped.case}: ${skipped.reason}\n`;
    text += "\n";
  }
  text += `${result.state === "complete" ? "" : `${result.state}; `}${result.seconds.toFixed(0)} s`;
  return `${text}${file === undefined ? "" : `\nwritten  ${file}`}\n`;
}
