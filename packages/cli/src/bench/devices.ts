import { resolve } from "node:path";
import { backendNames, type EngineOptions, TesseraError } from "@tessera/core";
import { Option } from "commander";
import { append } from "../attend/settings.js";

/** Of the commands that measure. */
export const backendOption = () =>
  new Option("--backend <name[:device]>", "where; repeat it for several (default: the best usable)")
    .argParser<readonly string[]>(append)
    .default([], "best");

/** `--backend cuda:1 --backend cpu`, as options of `openEngine`. */
export function devicesOf(
  given: readonly string[],
  library: string | undefined,
  threads: number | undefined,
): EngineOptions[] {
  const common = threads === undefined ? {} : { threads };
  if (library !== undefined) {
    if (given.length > 0) throw new TesseraError("invalid-argument", "--library and --backend: give one of them");
    return [{ library: resolve(library), ...common }];
  }
  if (given.length === 0) return [common];
  return given.map((text) => {
    const [name, device] = text.split(":") as [string, string?];
    if (!(backendNames as readonly string[]).includes(name) || (device !== undefined && !/^\d+$/.test(device))) {
      const allowed = `${backendNames.join(", ")}, with :DEVICE behind it if you like`;
      throw new TesseraError("invalid-argument", `--backend is ${text}; allowed: ${allowed}`);
    }
    const backend = name as (typeof backendNames)[number];
    return { backend, ...common, ...(device !== undefined && { device: Number(device) }) };
  });
}
