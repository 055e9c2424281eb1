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
      return { name, value: env[name] ?? "", meaning: known[name] ?? "", ...(problem !== undefined && { problem }) };
    });
}
