/** Result files as the report sees them: devices of all files in one list, measurements as rates. */
import { bytesOf } from "../arena.js";
import type { Ceiling, DeviceResult, Measurement, Profile, ResultFile } from "../result.js";
import { quantile } from "../statistics.js";
import { stepTitle } from "./article.js";

/** One device of one file. */
export interface ReportDevice {
  readonly id: number;
  readonly label: string;
  readonly backend: string;
  /** "NVIDIA", "AMD" or the back end's name. */
  readonly vendor: string;
  readonly arch: string;
  readonly file: string;
  readonly state: string;
  readonly copy?: number | undefined;
  readonly read?: number | undefined;
  readonly matmul16?: number | undefined;
  readonly matmul32?: number | undefined;
}

export interface ReportRow {
  /** id of its device */
  readonly device: number;
  readonly suite: string;
  readonly case: string;
  readonly kind: Measurement["kind"];
  /** Queries of a prefill, keys of a decode. */
  readonly size: number;
  readonly dtype: string;
  readonly dim: number;
  readonly heads: string;
  /** What cases have in common that differ in size alone. */
  readonly series: string;
  readonly feature: string;
  readonly step: string;
  readonly kernel: string;
  readonly splits: number;
  readonly tuned: boolean;
  readonly ms: number;
  readonly low: number;
  readonly high: number;
  readonly spread: number;
  readonly tflops?: number | undefined;
  readonly gbs?: number | undefined;
  /** Of the ceiling that this work runs into: reading for decode, a matrix product for prefill. */
  readonly share?: number | undefined;
  /** Operations per byte of inputs and outputs. */
  readonly intensity?: number | undefined;
  /** Bytes. */
  readonly workspace?: number | undefined;
  readonly allocated?: number | undefined;
  readonly unfused?: number | undefined;
  readonly stages?: { readonly [name: string]: number } | undefined;
  readonly check: "ok" | "wrong" | "";
}

export interface ReportModel {
  readonly devices: readonly ReportDevice[];
  readonly rows: readonly ReportRow[];
  readonly profiles: readonly (Omit<Profile, "device"> & { readonly device: number })[];
}

export interface NamedResult {
  /** Of the file, without its folder. */
  readonly name: string;
  readonly result: ResultFile;
}

const vendors: { readonly [backend: string]: string } = { cuda: "NVIDIA", hip: "AMD", cpu: "CPU" };

export function vendorOf(backend: string): string {
  return vendors[backend] ?? backend;
}

function deviceOf(id: number, file: string, device: DeviceResult, twins: number): ReportDevice {
  const { backend, name, arch, threads, state, ceilings } = device;
  const value = (ceiling: Ceiling | undefined) => ceiling?.value;
  const what = `${name}${threads === undefined ? "" : `, ${threads} threads`}`;
  return {
    id,
    label: twins > 1 ? `${what} (${file})` : what,
    backend,
    vendor: vendorOf(backend),
    arch,
    file,
    state,
    copy: value(ceilings.copy),
    read: value(ceilings.read),
    matmul16: value(ceilings.matmul16),
    matmul32: value(ceilings.matmul32),
  };
}

function rowOf(id: number, device: ReportDevice, one: Measurement): ReportRow {
  const { shape, dtype, kind, median: ms, samples, flops, bytes } = one;
  const decode = kind === "decode";
  const type = dtype === undefined ? "" : dtype.q === dtype.kv ? dtype.q : `${dtype.q}/${dtype.kv}`;
  const heads = shape ? (shape.heads === shape.kvHeads ? `${shape.heads}` : `${shape.heads}:${shape.kvHeads}`) : "";
  const timed = ms > 0;
  const tflops = timed && flops !== undefined ? flops / ms / 1e9 : undefined;
  const gbs = timed && decode && bytes !== undefined ? bytes / ms / 1e6 : undefined;
  const matmul = dtype?.q === "f32" ? device.matmul32 : device.matmul16;
  const [value, ceiling] = decode ? [gbs, device.read ?? device.copy] : [tflops, matmul];
  let intensity: number | undefined;
  if (shape && dtype && flops) {
    const { batch, heads: queryHeads, kvHeads, queries, keys, dim } = shape;
    const moved =
      2 * bytesOf(dtype.q as "f32", batch * queries * queryHeads * dim) +
      2 * bytesOf(dtype.kv as "f32", batch * keys * kvHeads * dim);
    intensity = flops / moved;
  }
  return {
    device: id,
    suite: one.suite,
    case: one.case,
    kind,
    size: shape ? (decode ? shape.keys : shape.queries) : 0,
    dtype: decode && dtype ? dtype.kv : type,
    dim: shape?.dim ?? 0,
    heads,
    series: shape
      ? `B${shape.batch}, ${heads} heads, D ${shape.dim}, ${decode ? "decode" : one.causal ? "causal" : "full"}, ${type}`
      : "",
    feature: one.feature ?? "",
    step: one.step === undefined ? "" : stepTitle(one.step),
    kernel: one.kernel ?? "",
    splits: one.splits ?? 1,
    tuned: one.tuned ?? false,
    ms,
    low: timed ? quantile(samples, 0.25) : 0,
    high: timed ? quantile(samples, 0.75) : 0,
    spread: one.spread,
    tflops,
    gbs,
    share: value !== undefined && ceiling ? value / ceiling : undefined,
    intensity,
    workspace: one.memory?.workspace,
    allocated: one.memory?.allocated,
    unfused: one.memory?.unfused,
    stages: one.stages,
    check: one.check === undefined ? "" : one.check.ok ? "ok" : "wrong",
  };
}

export function modelOf(files: readonly NamedResult[]): ReportModel {
  const names = files.flatMap(({ result }) => result.devices.map(({ name, threads }) => `${name} ${threads}`));
  const devices: ReportDevice[] = [];
  const rows: ReportRow[] = [];
  const profiles: ReportModel["profiles"][number][] = [];
  for (const { name, result } of files) {
    const ids = new Map<string, ReportDevice>();
    for (const device of result.devices) {
      const twins = names.filter((other) => other === `${device.name} ${device.threads}`).length;
      const one = deviceOf(devices.length, name, device, twins);
      devices.push(one);
      ids.set(device.key, one);
    }
    for (const one of result.measurements) {
      const device = ids.get(one.device)!;
      rows.push(rowOf(device.id, device, one));
    }
    for (const one of result.profiles ?? []) profiles.push({ ...one, device: ids.get(one.device)!.id });
  }
  return { devices, rows, profiles };
}
