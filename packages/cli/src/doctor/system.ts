/** What of the machine decides which back ends can work. */
import { existsSync, readFileSync } from "node:fs";
import { availableParallelism, cpus, machine, type as osType, release, totalmem } from "node:os";

export interface System {
  readonly os: string;
  readonly architecture: string;
  readonly libc: string;
  readonly node: string;
  readonly cpu: string;
  /** Cores that this process may use. */
  readonly cores: number;
  readonly cpuFeatures: readonly string[];
  readonly memoryBytes: number;
  /** GPU drivers that the kernel has loaded: there is hardware for them, whatever is installed of Tessera. */
  readonly gpuDrivers: readonly string[];
}

/** Features that a kernel somewhere is built for, as /proc/cpuinfo spells them. */
const features = [
  "avx2",
  "fma",
  "f16c",
  "avx512f",
  "avx512bw",
  "avx512vl",
  "avx512_vnni",
  "avx512_bf16",
  "avx512_fp16",
  "amx_bf16",
  "asimd",
  "asimdhp",
  "asimddp",
  "bf16",
  "i8mm",
  "sve",
];

export function describeSystem(): System {
  const limit = process.constrainedMemory();
  const memoryBytes = limit > 0 && limit < totalmem() ? limit : totalmem();
  return {
    os: osName(),
    architecture: machine(),
    libc: libc(),
    node: `${process.version}, Node-API ${process.versions.napi}`,
    cpu: cpus()[0]?.model.trim() || "unknown",
    cores: availableParallelism(),
    cpuFeatures: cpuFeatures(),
    memoryBytes,
    gpuDrivers: gpuDrivers(),
  };
}

function gpuDrivers(): string[] {
  const drivers: string[] = [];
  const nvidia = /Kernel Module\s+(?:for \S+\s+)?([\d.]+)/.exec(readOr("/proc/driver/nvidia/version", ""))?.[1];
  if (nvidia !== undefined) drivers.push(`NVIDIA ${nvidia}`);
  if (existsSync("/dev/kfd")) drivers.push("AMD (amdkfd)");
  return drivers;
}

function osName(): string {
  const pretty = /^PRETTY_NAME="?([^"\n]*)/m.exec(readOr("/etc/os-release", ""))?.[1];
  return `${pretty ? `${pretty}, ` : ""}${osType()} ${release()}`;
}

function libc(): string {
  if (process.platform !== "linux") return "the system's own";
  interface NodeReport {
    readonly header: { readonly glibcVersionRuntime?: string };
    readonly sharedObjects: readonly string[];
  }
  const report = process.report as unknown as { excludeNetwork: boolean; getReport(): NodeReport };
  report.excludeNetwork = true; // else it may ask DNS
  const { header, sharedObjects } = report.getReport();
  if (header.glibcVersionRuntime) return `glibc ${header.glibcVersionRuntime}`;
  return sharedObjects.some((path) => /musl/.test(path)) ? "musl" : "unknown";
}

function cpuFeatures(): string[] {
  const line = /^(?:flags|Features)\s*:(.*)$/m.exec(readOr("/proc/cpuinfo", ""))?.[1] ?? "";
  const present = new Set(line.trim().split(/\s+/));
  return features.filter((feature) => present.has(feature));
}

function readOr(path: string, fallback: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return fallback;
  }
}
