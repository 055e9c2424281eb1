/**
 * What `tune` found, kept in the user's cache directory for later processes: one small file for each device and class
 * of shapes, so that processes that write at the same time can't lose each other's findings.
 *
 *     $TESSERA_CACHE_DIR, else $XDG_CACHE_HOME/tessera, else ~/.cache/tessera
 *       tuning-1/<hash of the device>/<hash of the shape class>.json
 */
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, homedir, platform, release } from "node:os";
import { isAbsolute, join } from "node:path";
import type { DeviceInfo } from "./backend.js";
import { randomName, sha256 } from "./lazy-crypto.js";
import type { Tuned, Tuning } from "./tuning.js";

interface Entry extends Tuned {
  readonly format: "tessera-tuning";
  readonly version: 1;
  readonly device: string;
  readonly shape: string;
  readonly milliseconds: number;
}

const version = 1;

/** The user's cache directory for Tessera. */
export function cacheDirectory(environment: NodeJS.ProcessEnv = process.env): string {
  const { TESSERA_CACHE_DIR: own, XDG_CACHE_HOME: xdg } = environment;
  if (own) return own;
  // The XDG specification: a relative path is to be ignored.
  return join(xdg && isAbsolute(xdg) ? xdg : join(homedir(), ".cache"), "tessera");
}

/** Versions of the kernel modules of GPUs, or of the system that its drivers come with: another driver, and what was fastest may not be. */
function drivers(): string {
  const found: string[] = [];
  for (const name of ["nvidia", "amdgpu"]) {
    try {
      found.push(`${name} ${readFileSync(`/sys/module/${name}/version`, "utf8").trim()}`);
    } catch {
      // It isn't loaded, or is part of the kernel.
    }
  }
  return found.length > 0 ? found.join(", ") : `${platform()} ${release()}`;
}

/** Everything that makes a device another device. */
export function deviceKey(
  backend: string,
  backendVersion: string,
  device: DeviceInfo,
  threads: number | undefined,
): string {
  const { name, arch, computeUnits, memoryBytes, caps } = device;
  const gibi = Math.round(memoryBytes / 2 ** 30);
  const where = caps.async
    ? drivers()
    : `${threads ?? (process.env.TESSERA_THREADS || availableParallelism())} threads`;
  return [backend, backendVersion, name, arch, `${computeUnits} units`, caps.async ? `${gibi} GiB` : "", where].join(
    "; ",
  );
}

const hashed = (text: string) => sha256(text).slice(0, 24);

function warn(message: string): void {
  process.emitWarning(message, { type: "TesseraWarning", code: "TESSERA_TUNING" });
}

export class TuneStore implements Tuning {
  readonly #device: string;

  constructor(device: string) {
    this.#device = device;
  }

  get folder(): string {
    return join(cacheDirectory(), `tuning-${version}`, hashed(this.#device));
  }

  /** All that is known of the device. A file that is damaged is left alone and told of. */
  load(): Map<string, Tuned> {
    const known = new Map<string, Tuned>();
    const { folder } = this;
    let names: string[];
    try {
      names = readdirSync(folder);
    } catch {
      return known; // nothing was ever tuned
    }
    for (const name of names) {
      if (!name.endsWith(".json")) continue;
      const path = join(folder, name);
      try {
        const entry = checked(JSON.parse(readFileSync(path, "utf8")) as Entry);
        // A hash that two devices or shapes share.
        if (entry.device === this.#device) known.set(entry.shape, entry);
      } catch (error) {
        warn(`ignored ${path}, which is damaged (${(error as Error).message}); delete it or tune again`);
      }
    }
    return known;
  }

  /** Whole or not at all. A directory that can't be written to costs only the memory. */
  save(shape: string, { kernel, numSplits }: Tuned, milliseconds: number): void {
    const { folder } = this;
    const entry: Entry = {
      format: "tessera-tuning",
      version,
      device: this.#device,
      shape,
      kernel,
      numSplits,
      milliseconds,
    };
    const temporary = join(folder, `.${randomName()}`);
    try {
      mkdirSync(folder, { recursive: true });
      writeFileSync(temporary, `${JSON.stringify(entry, null, 2)}\n`);
      renameSync(temporary, join(folder, `${hashed(shape)}.json`));
    } catch (error) {
      try {
        rmSync(temporary, { force: true });
      } catch {
        // The path leads through something that is no directory.
      }
      warn(`what was tuned is kept for this process only: ${(error as Error).message}`);
    }
  }

  clear(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

function checked(entry: Entry): Entry {
  const { format, kernel, numSplits, device, shape } = entry;
  if (format !== "tessera-tuning" || entry.version !== version) throw new Error(`not of version ${version}`);
  if (typeof kernel !== "string" || typeof device !== "string" || typeof shape !== "string")
    throw new Error("no kernel");
  if (!Number.isInteger(numSplits) || numSplits < 0) throw new Error(`numSplits is ${numSplits}`);
  return entry;
}
