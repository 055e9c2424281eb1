/** Libraries of GPU vendors in LD_LIBRARY_PATH: they are found before the system's. */
import { readdirSync } from "node:fs";
import { delimiter, join } from "node:path";

const meanings: readonly (readonly [RegExp, string])[] = [
  [
    /^libcudart\.so/,
    "is not used: the CUDA back end carries its own CUDA runtime. It changes nothing here, whatever its version",
  ],
  [
    /^libcuda\.so/,
    "is taken for the NVIDIA driver, before the system's. If the cuda back end isn't usable, take its folder out of LD_LIBRARY_PATH: a stub of the toolkit or a driver of another version can't reach the GPU",
  ],
  [
    /^libamdhip64\.so/,
    "is taken for the ROCm runtime, before the system's. If the hip back end isn't usable, take its folder out of LD_LIBRARY_PATH: the runtime has to fit the kernel's driver",
  ],
  [
    /^libtessera-\w+\.so/,
    "is not used: back ends are found by package or TESSERA_BACKEND_PATH, never by LD_LIBRARY_PATH",
  ],
  [/^libstdc\+\+\.so/, "is not used by Tessera, whose libraries carry their C++ library; Node itself may use it"],
];

export interface Shadow {
  readonly path: string;
  readonly meaning: string;
}

export function shadows(env: NodeJS.ProcessEnv = process.env): Shadow[] {
  if (process.platform !== "linux") return [];
  return (env.LD_LIBRARY_PATH ?? "")
    .split(delimiter)
    .filter((folder) => folder !== "")
    .flatMap((folder) =>
      list(folder).flatMap((name) => {
        const meaning = meanings.find(([pattern]) => pattern.test(name))?.[1];
        return meaning === undefined ? [] : [{ path: join(folder, name), meaning }];
      }),
    );
}

function list(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch {
    return [];
  }
}
