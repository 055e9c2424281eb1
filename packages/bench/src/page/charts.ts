/** The charts of the report, by Observable Plot. */
import * as Plot from "@observablehq/plot";
import { articleSizes, articleSteps, inOrder } from "../report/article.js";
import { percent, three, time } from "../report/html.js";
import type { ReportDevice, ReportModel, ReportRow } from "../report/model.js";

export interface Chart {
  readonly title: string;
  /** For who can't see it. */
  readonly summary: string;
  draw(width: number): SVGSVGElement | HTMLElement;
}

export interface View {
  readonly model: ReportModel;
  /** Devices that are shown. */
  readonly shown: ReadonlySet<number>;
  color(device: number): string;
}

const sizeText = (size: number) => (size >= 1024 && size % 1024 === 0 ? `${size / 1024}k` : `${size}`);

function named({ model }: View, row: ReportRow): ReportDevice {
  return model.devices[row.device]!;
}

function tip(view: View, row: ReportRow): string {
  const rate =
    row.gbs !== undefined ? `${three(row.gbs)} GB/s` : row.tflops !== undefined ? `${three(row.tflops)} TFLOP/s` : "";
  const share = row.share === undefined ? "" : ` (${percent(row.share)} of ceiling)`;
  const kernel = `${row.kernel}${row.splits > 1 ? ` ×${row.splits}` : ""}${row.tuned ? ", tuned" : ""}`;
  const lines = [
    named(view, row).label,
    row.case,
    `${rate}${share}`,
    `${time(row.ms)}, spread ${percent(row.spread)}`,
    kernel,
  ];
  return lines.filter((line) => line !== "").join("\n");
}

function groupBy<T>(rows: readonly T[], key: (row: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const row of rows) {
    const group = groups.get(key(row));
    if (group) group.push(row);
    else groups.set(key(row), [row]);
  }
  return groups;
}

/** What two suites have measured counts once. */
function once(rows: readonly ReportRow[]): ReportRow[] {
  return [...groupBy(rows, (row) => `${row.device} ${row.size} ${row.kernel}`).values()].map((same) => same[0]!);
}

const common = { marginLeft: 52, marginBottom: 40, style: { background: "none" } } as const;

/** A rate over sizes: a line for each device and kernel. */
function sweep(
  view: View,
  title: string,
  rows: readonly ReportRow[],
  axis: { readonly x: string; readonly y: string },
  value: (row: ReportRow) => number | undefined,
  ceiling?: (device: ReportDevice) => number | undefined,
): Chart {
  const sizes = [...new Set(rows.map(({ size }) => size))].sort((a, b) => a - b);
  const best = rows.reduce((a, b) => ((value(b) ?? 0) > (value(a) ?? 0) ? b : a));
  const summary = `${title}: ${axis.y} over ${axis.x}, ${sizeText(sizes[0]!)} to ${sizeText(sizes.at(-1)!)}. Highest: ${three(value(best))}, ${named(view, best).label} at ${sizeText(best.size)}.`;
  const devices = [...new Set(rows.map(({ device }) => device))].map((id) => view.model.devices[id]!);
  const limits = ceiling ? devices.flatMap((one) => (ceiling(one) ? [{ id: one.id, at: ceiling(one)! }] : [])) : [];
  const z = (row: ReportRow) => `${row.device} ${row.kernel.replace(/.*(ladder.*)/, "$1")}`;
  const options = { x: "size", y: value, z, stroke: (row: ReportRow) => view.color(row.device) } as const;
  return {
    title,
    summary,
    draw: (width) =>
      Plot.plot({
        ...common,
        width,
        height: 280,
        x: { type: "log", base: 2, label: axis.x, ticks: sizes, tickFormat: sizeText },
        y: { label: axis.y, grid: true, zero: true, nice: true },
        marks: [
          Plot.ruleY([0]),
          Plot.ruleY(limits, {
            y: "at",
            stroke: ({ id }: { id: number }) => view.color(id),
            strokeDasharray: "4 4",
            ariaLabel: "ceiling",
          }),
          Plot.line(rows, { ...options, sort: "size", strokeWidth: 2 }),
          Plot.dot(rows, { ...options, fill: (row: ReportRow) => view.color(row.device), r: 3.5, symbol: "kernel" }),
          Plot.tip(
            rows,
            Plot.pointer({ x: "size", y: value, title: (row: ReportRow) => tip(view, row), maxRadius: 40 }),
          ),
        ],
      }),
  };
}

function prefillCharts(view: View, rows: readonly ReportRow[]): Chart[] {
  const charts: Chart[] = [];
  const prefill = rows.filter((row) => row.kind === "prefill" && row.step === "" && row.feature === "");
  for (const [series, all] of groupBy(prefill, (row) => row.series)) {
    const group = once(all);
    if (new Set(group.map(({ size }) => size)).size < 2) continue;
    charts.push(sweep(view, series, group, { x: "S", y: "TFLOP/s" }, (row) => row.tflops));
    if (group.some(({ share }) => share !== undefined)) {
      const y = "% of the matrix product's rate";
      const share = (row: ReportRow) => (row.share === undefined ? undefined : 100 * row.share);
      charts.push(sweep(view, `${series}: share of ceiling`, group, { x: "S", y }, share));
    }
  }
  const dims = rows.filter(({ suite }) => suite === "head-dims");
  if (new Set(dims.map(({ dim }) => dim)).size > 1) {
    const byDim = dims.map((row) => ({ ...row, size: row.dim, kernel: "" }));
    charts.push(bars(view, "By head dim", byDim, "head dim", (row) => `${row.dim}`));
  }
  const gqa = rows.filter(({ suite, kind }) => suite === "gqa" && kind === "prefill");
  if (gqa.length > 1) charts.push(bars(view, "By query and key/value heads", gqa, "heads", (row) => row.heads));
  return charts;
}

/** TFLOP/s of a few cases, a group of bars for each. */
function bars(
  view: View,
  title: string,
  rows: readonly ReportRow[],
  label: string,
  group: (row: ReportRow) => string,
): Chart {
  const domain = [...new Set(rows.map(group))];
  const best = rows.reduce((a, b) => ((b.tflops ?? 0) > (a.tflops ?? 0) ? b : a));
  return {
    title,
    summary: `${title}: TFLOP/s. Highest: ${three(best.tflops)}, ${group(best)} on ${named(view, best).label}.`,
    draw: (width) =>
      Plot.plot({
        ...common,
        width,
        height: 280,
        fx: { domain, label, padding: 0.15 },
        x: { axis: null, padding: 0.1 },
        y: { label: "TFLOP/s", grid: true },
        marks: [
          Plot.ruleY([0]),
          Plot.barY(rows, { fx: group, x: "device", y: "tflops", fill: (row: ReportRow) => view.color(row.device) }),
          Plot.tip(
            rows,
            Plot.pointer({
              fx: group,
              x: "device",
              y: "tflops",
              title: (row: ReportRow) => tip(view, row),
              maxRadius: 200,
            }),
          ),
        ],
      }),
  };
}

function decodeCharts(view: View, rows: readonly ReportRow[]): Chart[] {
  const charts: Chart[] = [];
  const decode = rows.filter(({ kind, suite }) => kind === "decode" && suite !== "gqa");
  for (const [series, group] of groupBy(decode, (row) => row.series)) {
    if (new Set(group.map(({ size }) => size)).size < 2) continue;
    const limit = (device: ReportDevice) => device.read ?? device.copy;
    charts.push(sweep(view, series, once(group), { x: "keys", y: "GB/s" }, (row) => row.gbs, limit));
  }
  return charts;
}

function rooflineCharts(view: View, rows: readonly ReportRow[]): Chart[] {
  const points = rows.filter(({ intensity, tflops }) => intensity !== undefined && tflops !== undefined);
  if (points.length === 0) return [];
  const devices = [...new Set(points.map(({ device }) => device))].map((id) => view.model.devices[id]!);
  const range = points.map(({ intensity }) => intensity!);
  const [from, to] = [Math.min(...range) / 2, Math.max(...range) * 2];
  const lines = devices.flatMap((device) => {
    const bandwidth = device.read ?? device.copy;
    const peak = device.matmul16 ?? device.matmul32 ?? Number.POSITIVE_INFINITY;
    if (bandwidth === undefined) return [];
    const steps = Array.from({ length: 60 }, (_, i) => from * (to / from) ** (i / 59));
    // Without a peak there is a slope alone, as far as points go.
    const top = Number.isFinite(peak) ? peak : Math.max(...points.map(({ tflops }) => tflops!)) * 2;
    return steps
      .map((x) => ({ device: device.id, x, y: Math.min(peak, (x * bandwidth) / 1000) }))
      .filter(({ y }) => y <= top);
  });
  const number = (value: number) => (value >= 1 ? `${value}` : value.toPrecision(1));
  return [
    {
      title: "All cases",
      summary: `Roofline: ${points.length} cases on ${devices.length} devices, from ${three(from * 2)} to ${three(to / 2)} operations a byte.`,
      draw: (width) =>
        Plot.plot({
          ...common,
          width,
          height: 340,
          x: { type: "log", label: "operations per byte", tickFormat: number, grid: true },
          y: { type: "log", label: "TFLOP/s", tickFormat: number, grid: true },
          marks: [
            Plot.line(lines, {
              x: "x",
              y: "y",
              z: "device",
              stroke: (line: { device: number }) => view.color(line.device),
              strokeWidth: 1.5,
            }),
            Plot.dot(points, {
              x: "intensity",
              y: "tflops",
              stroke: (row: ReportRow) => view.color(row.device),
              fill: (row: ReportRow) => view.color(row.device),
              fillOpacity: 0.5,
              symbol: "kind",
              r: 4,
            }),
            Plot.tip(
              points,
              Plot.pointer({ x: "intensity", y: "tflops", title: (row: ReportRow) => tip(view, row), maxRadius: 40 }),
            ),
          ],
        }),
    },
  ];
}

function ladderCharts(view: View, rows: readonly ReportRow[]): Chart[] {
  const steps = rows.filter(({ step }) => step !== "");
  if (steps.length === 0) return [];
  const domain = inOrder([...steps, ...articleSteps].map(({ step }) => step));
  const place = (row: { readonly step: string }) => domain.indexOf(row.step);
  return articleSizes.flatMap((size, column): Chart[] => {
    const here = steps.filter((row) => row.size === size).sort((a, b) => place(a) - place(b));
    if (here.length === 0) return [];
    const article = articleSteps.map(({ step, tflops }) => ({ step, tflops: tflops[column]! }));
    const color = "var(--faint)";
    const draw = (width: number) =>
      Plot.plot({
        ...common,
        marginBottom: 96,
        width,
        height: 340,
        x: {
          type: "point",
          domain,
          label: null,
          tickRotate: -35,
          padding: 0.6,
        },
        y: { label: "TFLOP/s", grid: true, zero: true, nice: true },
        marks: [
          Plot.ruleY([0]),
          Plot.line(article, { x: "step", y: "tflops", curve: "step", stroke: color, strokeDasharray: "3 3" }),
          Plot.line(here, {
            x: "step",
            y: "tflops",
            z: "device",
            curve: "step",
            stroke: (row: ReportRow) => view.color(row.device),
            strokeWidth: 2,
          }),
          Plot.dot(here, { x: "step", y: "tflops", fill: (row: ReportRow) => view.color(row.device), r: 4 }),
          Plot.tip(
            here,
            Plot.pointer({ x: "step", y: "tflops", title: (row: ReportRow) => tip(view, row), maxRadius: 60 }),
          ),
        ],
      });
    return [
      {
        title: `S ${sizeText(size)} (dotted: the article's B200)`,
        summary: `Ladder at S ${sizeText(size)}: ${here.map((row) => `${row.step} ${three(row.tflops)}`).join(", ")} TFLOP/s.`,
        draw,
      },
    ];
  });
}

function featureCharts(view: View, rows: readonly ReportRow[]): Chart[] {
  const features = rows.filter(({ feature }) => feature !== "");
  const plain = new Map(features.filter(({ feature }) => feature === "causal").map((row) => [row.device, row.ms]));
  const costs = features.flatMap((row) => {
    const base = plain.get(row.device);
    return base && row.feature !== "causal" ? [{ ...row, ratio: row.ms / base }] : [];
  });
  if (costs.length === 0) return [];
  const worst = costs.reduce((a, b) => (b.ratio > a.ratio ? b : a));
  const domain = [...new Set(costs.map(({ feature }) => feature))];
  return [
    {
      title: "Time, where plain causal is 1",
      summary: `Cost of options: ${costs.map(({ feature, ratio }) => `${feature} ${ratio.toFixed(2)}`).join(", ")}. Dearest: ${worst.feature}.`,
      draw: (width) =>
        Plot.plot({
          ...common,
          marginLeft: 72,
          width,
          height: 60 + domain.length * (14 + 12 * plain.size),
          fy: { domain, label: null, padding: 0.2 },
          y: { axis: null },
          x: { label: "× plain causal", grid: true },
          marks: [
            Plot.barX(costs, {
              fy: "feature",
              y: "device",
              x: "ratio",
              fill: (row: ReportRow) => view.color(row.device),
            }),
            Plot.ruleX([1], { stroke: "currentColor", strokeDasharray: "2 3" }),
            Plot.tip(
              costs,
              Plot.pointer({
                fy: "feature",
                y: "device",
                x: "ratio",
                title: (row) => `${tip(view, row)}\n${row.ratio.toFixed(2)} × plain causal`,
                maxRadius: 200,
              }),
            ),
          ],
        }),
    },
  ];
}

const makers: { readonly [section: string]: (view: View, rows: readonly ReportRow[]) => Chart[] } = {
  prefill: prefillCharts,
  decode: decodeCharts,
  roofline: rooflineCharts,
  ladder: ladderCharts,
  features: featureCharts,
};

/** Charts of a section, of the devices that are shown. */
export function chartsOf(section: string, view: View): Chart[] {
  const rows = view.model.rows.filter(({ device }) => view.shown.has(device));
  return makers[section]?.(view, rows) ?? [];
}
