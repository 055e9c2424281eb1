/** The numbers behind each chart. */
import { articleSizes, articleSteps } from "./article.js";
import { type Cell, cell, type Row, tableOf, three, time } from "./html.js";
import { type ReportDevice, type ReportModel, type ReportRow, vendorOf } from "./model.js";

const of = (model: ReportModel, keep: (row: ReportRow) => boolean) => model.rows.filter(keep);
const head = (...names: string[]) => names.map((text, i): Cell => ({ text, number: i > 2 }));

/** Rows of one kind, one below the other. Empty if there is none. */
function listed(
  model: ReportModel,
  caption: string,
  keep: (row: ReportRow) => boolean,
  columns: readonly (readonly [string, (row: ReportRow) => string | Cell])[],
): string {
  const rows = of(model, keep).map(
    (row): Row => ({
      device: row.device,
      cells: [row.case, model.devices[row.device]!.label, ...columns.map(([, value]) => value(row))],
    }),
  );
  return rows.length === 0 ? "" : tableOf(caption, head("case", "device", ...columns.map(([name]) => name)), rows);
}

const kernel = ["kernel", (row: ReportRow) => `${row.kernel}${row.splits > 1 ? ` ×${row.splits}` : ""}`] as const;
const median = ["median", (row: ReportRow) => cell.time(row.ms)] as const;
const spread = ["spread", (row: ReportRow) => cell.percent(row.spread)] as const;
const tflops = ["TFLOP/s", (row: ReportRow) => cell.number(row.tflops)] as const;
const gbs = ["GB/s", (row: ReportRow) => cell.number(row.gbs)] as const;
const share = ["of ceiling", (row: ReportRow) => cell.percent(row.share)] as const;
const check = ["check", (row: ReportRow) => ({ text: row.check, class: row.check })] as const;

const inSweep = (row: ReportRow) => row.kind === "prefill" && row.step === "" && row.feature === "";

export const tables = {
  prefill: (model: ReportModel) => listed(model, "Prefill", inSweep, [kernel, median, spread, tflops, share, check]),
  decode: (model: ReportModel) =>
    listed(model, "Decode", (row) => row.kind === "decode", [kernel, median, spread, gbs, share, check]),
  features: (model: ReportModel) => {
    const plain = new Map(of(model, (row) => row.feature === "causal").map((row) => [row.device, row.ms]));
    const ratio = (row: ReportRow) => {
      const base = plain.get(row.device);
      return cell.text(base ? `${(row.ms / base).toFixed(2)} ×` : "");
    };
    return listed(model, "Cost of options", (row) => row.feature !== "", [
      kernel,
      median,
      spread,
      ["to plain causal", ratio],
      check,
    ]);
  },
  overhead: (model: ReportModel) =>
    listed(model, "Host time of a call, until it returns", (row) => row.kind === "overhead", [kernel, median, spread]),
  memory: (model: ReportModel) =>
    listed(model, "Memory beside inputs and outputs", (row) => row.kind === "memory", [
      kernel,
      ["workspace, MiB", (row) => cell.number((row.workspace ?? 0) / 2 ** 20)],
      [
        "taken in the call, MiB",
        (row) => cell.number(row.allocated === undefined ? undefined : row.allocated / 2 ** 20),
      ],
      ["scores, if unfused, MiB", (row) => cell.number((row.unfused ?? 0) / 2 ** 20)],
    ]),
  ladder: (model: ReportModel) => ladderTable(model) + stagesTable(model),
  compare: compareTable,
  profile: profileTable,
  ceilings: ceilingsTable,
};

function ladderTable(model: ReportModel): string {
  const steps = of(model, (row) => row.step !== "");
  if (steps.length === 0) return "";
  const groups = new Map<string, ReportRow[]>();
  for (const row of steps) {
    const key = `${row.device} ${row.step}`;
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  const article = articleSteps.map(
    ({ step, tflops: values }): Row => ({ cells: [step, "B200, as published", ...values.map(cell.number)] }),
  );
  const own = [...groups.values()].map(
    (rows): Row => ({
      device: rows[0]!.device,
      cells: [
        rows[0]!.step,
        model.devices[rows[0]!.device]!.label,
        ...articleSizes.map((size) => cell.number(rows.find((row) => row.size === size)?.tflops)),
      ],
    }),
  );
  const sizes = articleSizes.map((size) => cell.text(`S ${size.toLocaleString("en")}`));
  return tableOf("The ladder, TFLOP/s", ["step", "device", ...sizes], [...own, ...article]);
}

/** Where the time of unfused attention goes. */
function stagesTable(model: ReportModel): string {
  const rows = of(model, ({ stages }) => stages !== undefined);
  if (rows.length === 0) return "";
  const names = Object.keys(rows[0]!.stages!);
  return tableOf(
    "Unfused attention: shares of a call",
    head("case", "device", ...names).map((one, i) => ({ ...one, number: i > 1 })),
    rows.map(
      (row): Row => ({
        device: row.device,
        cells: [row.case, model.devices[row.device]!.label, ...names.map((name) => cell.percent(row.stages![name]))],
      }),
    ),
  );
}

/** What Nsight Compute said, function by function. */
function profileTable({ profiles, devices }: ReportModel): string {
  if (profiles.length === 0) return "";
  const names = [...new Set(profiles.flatMap(({ shares }) => Object.keys(shares)))];
  return tableOf(
    "Kernels under Nsight Compute",
    head("kernel", "device", "case, function", "time", ...names),
    profiles.map(({ device, kernel: name, case: what, function: part, microseconds, shares }): Row => {
      const values = names.map((one) => cell.percent(shares[one]));
      const took = microseconds === undefined ? cell.text("") : cell.time(microseconds / 1000);
      return { device, cells: [name, devices[device]!.label, `${what}, ${part}`, took, ...values] };
    }),
  );
}

/** Vendors whose column stays empty until somebody sends a file. */
const expected = ["cuda", "hip"];

function missingOf(devices: readonly ReportDevice[]): string[] {
  return expected.filter((backend) => !devices.some((device) => device.backend === backend));
}

/** Every case that the first device was measured in, side by side. Ratios are of speeds, to the first device. */
function compareTable({ devices, rows }: ReportModel): string {
  const keyOf = (row: ReportRow) => `${row.suite}: ${row.case}`;
  const byKey = new Map<string, Map<number, ReportRow>>();
  for (const row of rows) {
    if (row.kind === "memory") continue;
    const entry = byKey.get(keyOf(row)) ?? new Map<number, ReportRow>();
    entry.set(row.device, row);
    byKey.set(keyOf(row), entry);
  }
  const missing = missingOf(devices);
  const columns = devices.map((device, i): Cell => ({ text: label(device, i), number: true }));
  const absent = missing.map((backend): Cell => ({ text: vendorOf(backend), number: true }));
  const body = [...byKey].map(([key, entry]): Row => {
    const first = entry.get(devices[0]!.id);
    const cells = devices.map((device, i): Cell => {
      const row = entry.get(device.id);
      if (!row) return cell.text("–");
      const rate = row.gbs !== undefined ? `${three(row.gbs)} GB/s` : row.tflops ? `${three(row.tflops)} TFLOP/s` : "";
      const ratio = i > 0 && first ? `, ${(first.ms / row.ms).toFixed(2)} ×` : "";
      return cell.text(`${rate === "" ? time(row.ms) : rate}${ratio}`);
    });
    return { cells: [key, ...cells, ...missing.map(() => cell.text("not run: no device"))] };
  });
  return tableOf("Devices side by side", ["case", ...columns, ...absent], body);
}

function label(device: ReportDevice, index: number): string {
  return `${device.label}${index === 0 ? " (1 ×)" : ""}`;
}

function ceilingsTable({ devices }: ReportModel): string {
  const rows = devices.map(
    (device): Row => ({
      device: device.id,
      cells: [
        device.label,
        device.backend,
        device.arch,
        ...[device.copy, device.read, device.matmul16, device.matmul32].map(cell.number),
        device.state,
      ],
    }),
  );
  for (const backend of missingOf(devices)) {
    const nothing = Array.from({ length: 4 }, () => cell.text("–"));
    rows.push({ cells: [vendorOf(backend), backend, "–", ...nothing, "not run: no device"] });
  }
  const names = ["device", "back end", "architecture", "copy, GB/s", "read, GB/s", "matrix product 16 bit, TFLOP/s"];
  return tableOf(
    "Devices and their ceilings, measured in the same runs",
    [...names, "matrix product 32 bit, TFLOP/s", "run"].map((text, i) => ({ text, number: i > 2 && i < 7 })),
    rows,
  );
}
