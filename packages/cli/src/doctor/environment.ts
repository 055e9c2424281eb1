import { existsSync } from "node:fs";
import { delimiter, isAbsolute } from "node:path";

/** Variables that change which device is used and how. */
const known: { readonly [name: string]: string } = {
  CUDA_VISIBLE_DEVICES: "which NVIDIA devices exist for this process, and their order",
  CUDA_DEVICE_ORDER: "how NVIDIA devices are numbered",
  HIP_VISIBLE_DEVICES: "which AMD devices exist for this process",
  ROCR_VISIBLE_DEVICES: "which AMD devices exist for this process",
  GPU_DEVICE_ORDINAL: "which AMD devices exist for this process",
  HSA_OVERRIDE_GFX_VERSION: "makes an AMD device pass for another",
  LD_LIBRARY_PATH: "where libraries are looked for first",
  LD_PRELOAD: "libraries loaded before all others",
  OMP_NUM_THREADS: "not read by Tessera; set TESSERA_THREADS",
};

/** Ours. TESSERA_GPU_LIMITS … are bench's. */
const read = [
  "TESSERA_BACKEND",
  "TESSERA_BACKEND_PATH",
  "TESSERA_CACHE_DIR",
  "TESSERA_COMMIT",
  "TESSERA_CPU_ISA",
  "TESSERA_GGML_DEVICE",
  "TESSERA_GGML_ENGINES",
  "TESSERA_GGML_LOG",
  "TESSERA_GPU_LIMITS",
  "TESSERA_NCU",
  "TESSERA_PROBE_TIMEOUT_MS",
  "TESSERA_THREADS",
];

export interface Variable {
  readonly name: string;
  readonly value: string;
  readonly meaning: string;
  /** What the engine says of a value that it refuses. */
  readonly problem?: string;
}

/** Those of them that are set, and every TESSERA_ one. */
export function environment(
  env: NodeJS.ProcessEnv = process.env,
  refused: ReadonlyMap<string, string> = new Map(),
): Variable[] {
  return Object.keys(env)
    .filter((name) => name.startsWith("TESSERA_") || Object.hasOwn(known, name))
    .sort()
    .map((name) => {
      const problem = refused.get(name);
      const value = env[name] ?? "";
      return { name, value, meaning: meaningOf(name, value), ...(problem !== undefined && { problem }) };
    });
}

function meaningOf(name: string, value: string): string {
  if (name === "TESSERA_BACKEND_PATH") {
    const wrong = value.split(delimiter).flatMap((entry) => {
      if (entry === "") return [];
      if (!isAbsolute(entry)) return [`${entry} is not an absolute path`];
      return existsSync(entry) ? [] : [`${entry} does not exist`];
    });
    return wrong.length === 0 ? "" : `looked at first, but ${wrong.join("; ")}`;
  }
  if (name.startsWith("TESSERA_") && !read.includes(name))
    return `nothing of Tessera's reads it; read are ${read.join(", ")}`;
  return known[name] ?? "";
}
