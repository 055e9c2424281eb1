import type { Engine, Tried } from "@tessera/core";
import { bytes, milliseconds, scientific, table } from "../ui/table.js";
import type { Comparison, Verdict } from "./check.js";
import type { FloatTensor, Inputs } from "./inputs.js";
import type { Computed } from "./run.js";
import type { Settings } from "./settings.js";

/** The object that --json prints. */
export interface Report {
  readonly ok: boolean;
  readonly prefix: string;
  readonly backend: string;
  readonly device: { readonly index: number; readonly name: string; readonly arch: string };
  /** What is faster and didn't work, where nobody asked for the reference. */
  readonly passedOver?: readonly Tried[];
  readonly kernel: string;
  readonly splits: number;
  readonly shapes: { readonly [tensor: string]: readonly number[] };
  readonly dtypes: { readonly [tensor: string]: string };
  /** From enqueue to done, data on the device. */
  readonly milliseconds: number;
  readonly kvCache?: { readonly dtype: string; readonly bytes: number };
  /** With --check. */
  readonly errors?: Omit<Verdict, "ok">;
  readonly notes?: string;
  readonly output?: string;
  readonly map?: string;
}

export function toReport(
  engine: Engine,
  inputs: Inputs,
  settings: Settings,
  result: Computed,
  verdict: Verdict | undefined,
): Report {
  const { index, name, arch } = engine.device;
  const passed = passedOver(engine);
  const { ok = true, ...errors } = verdict ?? {};
  const fileShape = ({ shape }: FloatTensor) => (inputs.unbatched ? shape.slice(1) : shape);
  return {
    ok,
    prefix: inputs.prefix,
    backend: engine.backend,
    device: { index, name, arch },
    ...(passed.length > 0 && { passedOver: passed }),
    kernel: result.kernel,
    splits: result.splits,
    shapes: {
      q: fileShape(inputs.q),
      k: fileShape(inputs.k),
      v: fileShape(inputs.v),
      out: result.out.shape,
      lse: result.lse.shape,
    },
    dtypes: { q: inputs.q.dtype, k: inputs.k.dtype, v: inputs.v.dtype, out: result.outTensor.dtype },
    milliseconds: result.milliseconds,
    ...(result.kvCache && { kvCache: result.kvCache }),
    ...(verdict && { errors: errors as Omit<Verdict, "ok"> }),
    ...(result.notes !== "" && { notes: result.notes }),
    ...(settings.output !== undefined && { output: settings.output }),
    ...(settings.map !== undefined && { map: settings.map }),
  };
}

/** Every machine has a processor, so that the reference in its place wants a reason. */
function passedOver({ backend, selection }: Engine): readonly Tried[] {
  if (backend !== "reference" || selection.requested !== "auto") return [];
  return selection.tried.filter((one) => one.backend === "cpu");
}

/** What a person reads. */
export function describe(path: string, reports: readonly Report[], settings: Settings): string {
  const [first] = reports as [Report];
  const rows: string[][] = [
    ["file", path],
    ["backend", `${first.backend}, device ${first.device.index}: ${first.device.name} (${first.device.arch})`],
  ];
  for (const { backend, state, reason } of first.passedOver ?? []) {
    rows.push([`not ${backend}`, `${state}: ${reason.replace(/\s+/g, " ").trim()}; see tessera doctor`]);
  }
  for (const report of reports) {
    if (reports.length > 1) rows.push([], [report.prefix]);
    rows.push(...rowsOf(report));
  }
  if (reports.length > 1 || settings.output !== undefined || settings.map !== undefined) rows.push([]);
  if (reports.length > 1 && settings.check) {
    const good = reports.filter((report) => report.ok).length;
    rows.push(["in all", `${good} of ${reports.length} within tolerance`]);
  }
  if (settings.output !== undefined) rows.push(["written", settings.output]);
  if (settings.map !== undefined) rows.push(["map", settings.map]);
  return table(rows);
}

function rowsOf(report: Report): string[][] {
  const { shapes, dtypes, errors, kvCache } = report;
  const shape = (name: string) => `${name} ${dtypes[name] ?? "f32"} [${shapes[name]?.join(", ")}]`;
  const rows = [
    ["kernel", report.splits > 1 ? `${report.kernel}, ${report.splits} splits` : report.kernel],
    ["input", ["q", "k", "v"].map(shape).join("  ")],
    ["result", ["out", "lse"].map(shape).join("  ")],
  ];
  if (kvCache) rows.push(["kv cache", `${kvCache.dtype}, ${bytes(kvCache.bytes)}`]);
  rows.push(["time", milliseconds(report.milliseconds)]);
  if (report.notes !== undefined) rows.push(["note", report.notes]);
  if (errors === undefined) return rows;
  const oracle = kvCache ? "oracle on the cache's values" : "float64 oracle";
  rows.push(["check", verdict(`out vs ${oracle}`, errors.out)]);
  rows.push(["", verdict(`lse vs ${oracle}`, errors.lse)]);
  if (errors.storedOut) rows.push(["", verdict("out vs the file's own", errors.storedOut)]);
  if (errors.storedLse) rows.push(["", verdict("lse vs the file's own", errors.storedLse)]);
  return rows;
}

function verdict(what: string, { maxError, bound }: Comparison): string {
  const ok = maxError <= bound;
  return `${ok ? "ok  " : "FAIL"}  ${what}: error ${scientific(maxError)}, bound ${scientific(bound)}`;
}
