/**
 * Where a kernel's time goes, by Nsight Compute: each kernel of a result is run once more, in a process of its own under
 * `ncu`, on the largest case that it was measured in. Occupancy stands beside bandwidth and the use of tensor cores,
 * because alone it says little.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { DeviceResult, Measurement, Profile, ResultFile, Skipped } from "./result.js";

const execute = promisify(execFile);

/** Of Nsight Compute 2022 and later, on compute capability 8.0 and newer. */
const metrics = {
  barrier: "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
  shortScoreboard: "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
  mioThrottle: "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio",
  latency: "smsp__average_warp_latency_per_inst_issued.ratio",
  conflicts: "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
  wavefronts: "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
  occupancy: "sm__warps_active.avg.pct_of_peak_sustained_active",
  dram: "dram__throughput.avg.pct_of_peak_sustained_elapsed",
  tensor: "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
  time: "gpu__time_duration.sum",
} as const;

type Values = { readonly [K in keyof typeof metrics]: number };

/** Rows of CSV as RFC 4180 has it. */
export function parseCsv(text: string): string[][] {
  const rows: string[][] = [[]];
  let field = "";
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (quoted) {
      if (c !== '"') field += c;
      else if (text[i + 1] === '"') field += text[++i];
      else quoted = false;
    } else if (c === '"') quoted = true;
    else if (c === "," || c === "\n") {
      rows.at(-1)!.push(field);
      field = "";
      if (c === "\n") rows.push([]);
    } else if (c !== "\r") field += c;
  }
  rows.at(-1)!.push(field);
  return rows.filter((row) => row.length > 1 || row[0] !== "");
}

/** What `ncu --csv --page raw` prints: a header, a line of units, a line for each launch; anything may stand before. */
export function parseNcu(text: string): { readonly function: string; readonly values: Values }[] {
  const rows = parseCsv(text);
  const at = rows.findIndex((row) => row[0] === "ID" && row.includes("Kernel Name"));
  if (at < 0) return [];
  const header = rows[at]!;
  const number = (row: readonly string[], metric: string) =>
    Number((row[header.indexOf(metric)] ?? "").replaceAll(",", "") || Number.NaN);
  return rows
    .slice(at + 1)
    .filter((row) => /^\d+$/.test(row[0]!))
    .map((row) => ({
      function: row[header.indexOf("Kernel Name")]!,
      values: Object.fromEntries(
        Object.entries(metrics).map(([name, metric]) => [name, number(row, metric)]),
      ) as Values,
    }));
}

function shares(v: Values): Profile["shares"] {
  const all: { readonly [name: string]: number } = {
    "waiting at barriers": v.barrier / v.latency,
    "waiting for shared memory": (v.shortScoreboard + v.mioThrottle) / v.latency,
    "bank conflicts of shared accesses": v.wavefronts > 0 ? v.conflicts / v.wavefronts : 0,
    occupancy: v.occupancy / 100,
    "memory bandwidth": v.dram / 100,
    "tensor cores": v.tensor / 100,
  };
  // A metric that this GPU doesn't have is left out.
  return Object.fromEntries(Object.entries(all).filter(([, share]) => Number.isFinite(share) && share >= 0));
}

function ncuProgram(): string | undefined {
  const paths = (process.env.PATH ?? "").split(":").map((folder) => `${folder}/ncu`);
  return [process.env.TESSERA_NCU, ...paths, "/usr/local/cuda/bin/ncu"].find((path) => path && existsSync(path));
}

/** The largest case of each kernel that attention chose. */
function chosen({ measurements }: ResultFile, device: DeviceResult): Measurement[] {
  const largest = new Map<string, Measurement>();
  for (const one of measurements) {
    if (one.device !== device.key || !one.kernel || (one.kind !== "prefill" && one.kind !== "decode")) continue;
    if (one.kernel === "ladder-unfused") continue;
    const before = largest.get(one.kernel);
    if (!before || (one.flops ?? 0) > (before.flops ?? 0)) largest.set(one.kernel, one);
  }
  return [...largest.values()];
}

/** What the child is to run. */
export interface ProfileRequest {
  readonly backend: string;
  readonly device: number;
  readonly suite: string;
  readonly case: string;
  /** What was measured: a case of the ladder leaves it to tuning. */
  readonly kernel: string;
  /** Of the back end, where it was loaded from a path. */
  readonly library?: string;
}

function child(): string {
  const beside = fileURLToPath(new URL("profile-child.js", import.meta.url));
  return existsSync(beside) ? beside : fileURLToPath(new URL("../dist/profile-child.js", import.meta.url));
}

/** The result with profiles, and with the reason where there are none. `library`: what the run was given. */
export async function withProfiles(
  result: ResultFile,
  options: {
    readonly signal?: AbortSignal;
    readonly library?: string;
    readonly onProgress?: (what: string) => void;
  } = {},
): Promise<ResultFile> {
  const profiles: Profile[] = [];
  const skipped: Skipped[] = [...result.skipped];
  const ncu = ncuProgram();
  for (const device of result.devices) {
    const skip = (what: string, reason: string) =>
      skipped.push({ device: device.key, suite: "profile", case: what, reason: reason.split("\n")[0]! });
    if (device.backend !== "cuda") {
      skip("all kernels", "Nsight Compute knows NVIDIA GPUs only");
      continue;
    }
    if (ncu === undefined) {
      skip("all kernels", "Nsight Compute (ncu) is not installed");
      continue;
    }
    for (const one of chosen(result, device)) {
      if (options.signal?.aborted) {
        skip(one.kernel!, "interrupted");
        continue;
      }
      options.onProgress?.(`${device.key} ${one.kernel}: ${one.case}`);
      const { library } = options;
      const what = { suite: one.suite, case: one.case, kernel: one.kernel!, ...(library !== undefined && { library }) };
      const request: ProfileRequest = { backend: "cuda", device: device.index, ...what };
      const args = ["--csv", "--page", "raw", "--print-units", "base", "--target-processes", "all"];
      args.push("--metrics", Object.values(metrics).join(","), process.execPath, child(), JSON.stringify(request));
      try {
        const { stdout } = await execute(ncu, args, { timeout: 300_000, maxBuffer: 2 ** 26, signal: options.signal });
        // The last launch of each function: the first warmed up.
        const launches = new Map(parseNcu(stdout).map((launch) => [launch.function, launch]));
        if (launches.size === 0) skip(one.kernel!, `ncu told nothing: ${stdout.trim().split("\n").at(-1) ?? ""}`);
        for (const { function: name, values } of launches.values()) {
          const microseconds = values.time / 1000;
          profiles.push({
            device: device.key,
            kernel: one.kernel!,
            case: one.case,
            function: name,
            ...(Number.isFinite(microseconds) && { microseconds }),
            shares: shares(values),
          });
        }
      } catch (error) {
        if (options.signal?.aborted) {
          skip(one.kernel!, "interrupted");
          continue;
        }
        const { stdout = "", stderr = "", message } = error as { stdout?: string; stderr?: string; message: string };
        const told = `${stdout}\n${stderr}`.split("\n").find((line) => line.includes("==ERROR=="));
        skip(one.kernel!, told ?? message);
      }
    }
  }
  return { ...result, skipped, ...(profiles.length > 0 && { profiles }) };
}
