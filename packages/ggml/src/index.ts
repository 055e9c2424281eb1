/**
 * Tessera's attention in llama.cpp runtimes. The package carries a ggml back end, a shared library that a runtime loads when
 * `GGML_BACKEND_PATH` names it; this module finds the library and sets the variable.
 */
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, dirname, join } from "node:path";
import { library as cpuLibrary } from "@tessera/cpu";
import { library as found, platformPackage } from "../library.cjs";

/** Version of ggml's back end interface (`GGML_BACKEND_API_VERSION`) that the library speaks; a runtime takes no other. */
export const apiVersion = 2;

/**
 * Absolute path of `libggml-tessera-2.so`, for `GGML_BACKEND_PATH` or `ggml_backend_load`; undefined if there is none for this
 * platform, or optional dependencies were left out at install.
 */
export const library: string | undefined = found;

/** A runtime as far as it can be told from its package. */
export interface Runtime {
  /** "node-llama-cpp". */
  readonly name: string;
  readonly version: string;
  /** The llama.cpp in it, "v0.5.0"; undefined if the package doesn't say. */
  readonly llamaCpp: string | undefined;
  /**
   * Its ggml is known to have our `apiVersion`. Of other releases nobody has looked: the runtime does, at load, says so in its
   * log and goes on without the plug-in if it doesn't fit.
   */
  readonly known: boolean;
}

export interface EnableOptions {
  /**
   * Where to look for node-llama-cpp and @tessera/cuda: a folder, absolute, of the program that uses them. Default: the working
   * directory. `false`: don't look for node-llama-cpp (another runtime is going to be loaded).
   */
  readonly from?: string | false;
  /** What to set the variables in; default `process.env`. Give a copy to start another program with it. */
  readonly env?: NodeJS.ProcessEnv;
  /**
   * What the context's `threads` are going to be, if they are known. With 1 the plug-in takes every attention from the start
   * (`TESSERA_GGML_SMALL=take`, unless the variable is set); left out, it first has to see that there is one thread.
   */
  readonly threads?: number;
}

export interface Enabled {
  /** What `GGML_BACKEND_PATH` was set to. */
  readonly library: string;
  /** The installed node-llama-cpp; undefined if there is none, or it wasn't looked for. */
  readonly runtime: Runtime | undefined;
  /** What to pass to the runtime for the plug-in to be asked: options of node-llama-cpp's `createContext`. */
  readonly contextOptions: { readonly flashAttention: true; readonly threads?: number };
}

/** Why the plug-in can't be used. */
export class TesseraGgmlError extends Error {
  override readonly name = "TesseraGgmlError";
  /**
   * - `library-missing`: there is no plug-in for this platform, or it wasn't installed.
   * - `already-set`: `GGML_BACKEND_PATH` names another library; a runtime loads one.
   * - `invalid-argument`: an option of the wrong kind.
   */
  readonly code: "library-missing" | "already-set" | "invalid-argument";
  constructor(code: TesseraGgmlError["code"], message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * Makes the next runtime that this process (or one started with `env`) loads use Tessera for its attention: sets
 * `GGML_BACKEND_PATH`, and `TESSERA_GGML_ENGINES` so that the plug-in finds the engines: the CPU's, and the CUDA one if the
 * program has `@tessera/cuda`. Call it before `getLlama()`, and pass `contextOptions` to `createContext`: on the CPU, with
 * `flashAttention: "auto"`, llama.cpp gives attention up when it isn't computed by the device of the layer.
 *
 * @returns what was set, what was found, and what to pass.
 * @throws {@link TesseraGgmlError} with a `code`; nothing has been set then.
 */
export function enableTessera(options: EnableOptions = {}): Enabled {
  const { from = process.cwd(), env = process.env, threads } = options;
  if (from !== false && typeof from !== "string")
    throw new TesseraGgmlError(
      "invalid-argument",
      `from is ${JSON.stringify(from)}, must be an absolute path or false`,
    );
  if (env === null || typeof env !== "object")
    throw new TesseraGgmlError(
      "invalid-argument",
      `env is ${JSON.stringify(env)}, must be an object such as process.env`,
    );
  if (threads !== undefined && (!Number.isInteger(threads) || threads < 1))
    throw new TesseraGgmlError("invalid-argument", `threads is ${String(threads)}, must be an integer of at least 1`);
  if (library === undefined || !existsSync(library))
    throw new TesseraGgmlError(
      "library-missing",
      `@tessera/ggml has no library here: ${platformPackage} isn't installed (optional dependencies were left out, or there is ` +
        "none for this platform). In a clone: `node scripts/build-native.mjs ggml`.",
    );
  const runtime = from === false ? undefined : findRuntime(from);
  const before = env.GGML_BACKEND_PATH;
  if (before !== undefined && before !== "" && before !== library)
    throw new TesseraGgmlError(
      "already-set",
      `GGML_BACKEND_PATH is ${before}; a runtime loads one library by it, and it would no longer be that one`,
    );
  if (runtime?.known === false)
    process.emitWarning(
      `@tessera/ggml hasn't been tried with ${runtime.name} ${runtime.version}. If its ggml has another back end interface than ` +
        `version ${apiVersion}, it says so in its log and goes on without.`,
      { type: "TesseraWarning", code: "TESSERA_RUNTIME_UNKNOWN" },
    );
  env.GGML_BACKEND_PATH = library;
  const engines = [cpuLibrary, findCuda(from === false ? process.cwd() : from)].filter((path) => path !== undefined);
  if (engines.length > 0) env.TESSERA_GGML_ENGINES = engines.map((path) => dirname(path)).join(delimiter);
  if (threads === 1 && !env.TESSERA_GGML_SMALL) env.TESSERA_GGML_SMALL = "take";
  return { library, runtime, contextOptions: { flashAttention: true, ...(threads !== undefined && { threads }) } };
}

/** Releases of node-llama-cpp whose ggml has our version: looked at were 3.15.1, 3.19.1 and 3.22.1. */
const isKnown = (version: string): boolean => {
  const [major, minor = 0] = version.split(".").map(Number);
  return major === 3 && minor >= 15 && minor <= 22;
};

/** The CUDA engine, if the program has it: it is large, and no dependency of this package. */
function findCuda(from: string): string | undefined {
  try {
    return (createRequire(join(from, "noop.js"))("@tessera/cuda") as { library?: string }).library;
  } catch {
    return undefined;
  }
}

function findRuntime(from: string): Runtime | undefined {
  const name = "node-llama-cpp";
  let manifest: string;
  try {
    // Its exports hide package.json: look for the folder as Node does.
    const paths = createRequire(join(from, "noop.js")).resolve.paths(name) ?? [];
    const folder = paths.map((path) => join(path, name)).find((path) => existsSync(join(path, "package.json")));
    if (folder === undefined) return undefined;
    manifest = join(folder, "package.json");
  } catch {
    throw new TesseraGgmlError(
      "invalid-argument",
      `from is ${JSON.stringify(from)}, must be an absolute path or false`,
    );
  }
  const { version } = JSON.parse(readFileSync(manifest, "utf8")) as { version: string };
  const release = join(dirname(manifest), "llama/llama.cpp.info.json");
  const llamaCpp = existsSync(release)
    ? (JSON.parse(readFileSync(release, "utf8")) as { tag?: string }).tag
    : undefined;
  return { name, version, llamaCpp, known: isKnown(version) };
}
