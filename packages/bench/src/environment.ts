/** Where a run took place: the host, and what a vendor's own tool says of a device. */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { availableParallelism, cpus, release, totalmem } from "node:os";
import type { DeviceInfo } from "@tessera/core";
import type { ResultFile } from "./result.js";

function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return undefined;
  }
}

function output(program: string, args: readonly string[]): string | undefined {
  try {
    return execFileSync(program, args, {
      encoding: "utf8",
      timeout: 10_000,
      stdio: ["ignore", "pipe", "ignore"],
    }).trim();
  } catch {
    return undefined;
  }
}

export function hostOf(): ResultFile["host"] {
  const os = /^PRETTY_NAME="?([^"\n]*)/m.exec(textOf("/etc/os-release") ?? "")?.[1] ?? process.platform;
  const cpu = cpus()[0]?.model.trim() ?? "unknown";
  const cores = availableParallelism();
  // What a distributor or a hosting company appends is nobody's business.
  const kernel = /^[\d.]*\d/.exec(release())?.[0] ?? release();
  return { os, kernel, arch: process.arch, cpu, cores, memoryBytes: totalmem() };
}

/** The commit of the sources, in a clone; TESSERA_COMMIT where they were copied without one. */
export function commitOf(folder: string): string | null {
  if (process.env.TESSERA_COMMIT) return process.env.TESSERA_COMMIT;
  const commit = output("git", ["-C", folder, "rev-parse", "--short=12", "HEAD"]);
  if (!commit) return null;
  return output("git", ["-C", folder, "status", "--porcelain", "-uno"]) ? `${commit} and changes` : commit;
}

const nvidia = [
  "driver_version",
  "vbios_version",
  "pstate",
  "clocks.sm",
  "clocks.mem",
  "clocks.max.sm",
  "clocks.max.mem",
  "power.draw",
  "power.limit",
  "temperature.gpu",
  "ecc.mode.current",
];

/**
 * Driver, clocks, power and temperature as the vendor's tool tells them; undefined where there is none. The tools are
 * nvidia-smi and amd-smi; the second's words are passed on as they come.
 */
export function vendorOf(backend: string, device: DeviceInfo): { [name: string]: string } | undefined {
  if (backend === "cuda") {
    const which = device.id === "" ? String(device.index) : device.id;
    const row = output("nvidia-smi", ["-i", which, `--query-gpu=${nvidia.join(",")}`, "--format=csv,noheader"]);
    const values = row?.split(",").map((value) => value.trim());
    if (!values || values.length !== nvidia.length) return undefined;
    return Object.fromEntries(nvidia.map((name, i) => [name, values[i]!]));
  }
  if (backend === "hip") {
    const said = output("amd-smi", ["metric", "--gpu", String(device.index), "--clock", "--power", "--temperature"]);
    const driver = textOf("/sys/module/amdgpu/version");
    if (!said && !driver) return undefined;
    return { ...(driver && { driver }), ...(said && { "amd-smi": said }) };
  }
  return undefined;
}

/** Bytes of the largest cache that a CPU's cores have, as the kernel tells; undefined where it doesn't. */
export function lastLevelCache(): number | undefined {
  const folder = "/sys/devices/system/cpu/cpu0/cache";
  let largest: number | undefined;
  try {
    for (const name of readdirSync(folder)) {
      const size = /^(\d+)K$/.exec(textOf(`${folder}/${name}/size`) ?? "");
      if (size) largest = Math.max(largest ?? 0, Number(size[1]) * 1024);
    }
  } catch {
    // Not Linux, or a machine that hides it.
  }
  return largest;
}

const mebi = 2 ** 20;

/**
 * Bytes that inputs of successive calls cycle through: twice the last-level cache. A GPU doesn't tell its own through the
 * contract; the largest there are today have 256 MiB, and half of what an H200 can cache is left out by 256.
 */
export function rotation(device: DeviceInfo): number {
  if (!device.caps.hostMemory) return 512 * mebi;
  return 2 * (lastLevelCache() ?? 128 * mebi);
}
