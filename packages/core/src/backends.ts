/** The one ordered list of back ends, and how one of them is loaded. */
import type { Backend } from "./backend.js";
import { TesseraError } from "./error.js";
import { type LoadError, toTesseraError } from "./native/addon.js";
import { fixes, type LocateAttempt, locate } from "./native/locate.js";
import { NativeBackend } from "./native/native-backend.js";
import { nativeLibrary } from "./native/native-library.js";
import { referenceBackend } from "./reference/index.js";

/** Best first: the order in which "auto" chooses. */
export const backendNames = ["cuda", "hip", "webgpu", "cpu", "reference"] as const;

export type BackendName = (typeof backendNames)[number];

/**
 * How a back end comes to be: a library that speaks tessera.h; a package whose module exports `backend`, a Backend; or
 * part of this package.
 */
export const backendKinds: { readonly [K in BackendName]: "library" | "module" | "built-in" } = {
  cuda: "library",
  hip: "library",
  webgpu: "module",
  cpu: "library",
  reference: "built-in",
};

/**
 * Loads a back end into this process, by name or by the absolute path of its library. If it isn't sure that it loads,
 * `probe` finds out in a child process.
 * @throws TesseraError `backend-missing`, with everything that was tried and what to do; `abi-mismatch`
 */
export async function loadBackend(which: BackendName | { readonly library: string }): Promise<Backend> {
  if (typeof which === "object") return loadLibrary("of your own", which.library);
  switch (backendKinds[which]) {
    case "library":
      return loadLibrary(which);
    case "module":
      return loadModule(which);
    case "built-in":
      return referenceBackend;
    default:
      throw new TesseraError("invalid-argument", `backend is "${which}", expected one of ${backendNames.join(", ")}`);
  }
}

function loadLibrary(name: string, library?: string): Backend {
  const located = locate(name, library);
  if (located.library === undefined) throw missing(name, located.attempts, fixes(name, located.attempts));
  const native = nativeLibrary();
  if (native.addon === undefined) throw missing(name, located.attempts, [native.fix], native.reason);
  try {
    return new NativeBackend(native.addon, native.addon.load(located.library));
  } catch (thrown) {
    const { code, message } = toTesseraError(thrown);
    const fix = loadFix(name, (thrown as LoadError).state);
    throw new TesseraError(code, `${message}${fix === "" ? "" : `\nWhat to do: ${fix}`}`, { cause: thrown });
  }
}

/** What mends a library that is there but doesn't load. */
export function loadFix(name: string, state: string): string {
  const ours = (backendNames as readonly string[]).includes(name);
  if (state === "abi-mismatch")
    return ours
      ? `install @tessera/core and @tessera/${name} in versions that belong together`
      : "build it against this version's tessera.h";
  if (state === "not-a-backend") return "give the path of a library that exports tsr_backend_entry (tessera.h)";
  if (state === "load-failed") return `install what the message names${ours ? `, or @tessera/${name} again` : ""}`;
  return "";
}

async function loadModule(name: BackendName): Promise<Backend> {
  const specifier = `@tessera/${name}`;
  const at: LocateAttempt = { from: "package", at: specifier, result: "is not installed" };
  let loaded: { backend?: Backend };
  try {
    loaded = (await import(specifier)) as { backend?: Backend };
  } catch (cause) {
    const absent = (cause as NodeJS.ErrnoException).code === "ERR_MODULE_NOT_FOUND";
    const result = absent ? at.result : (cause as Error).message;
    throw missing(name, [{ ...at, result }], [`run \`npm install ${specifier}\``], undefined, cause);
  }
  if (loaded.backend === undefined) {
    throw missing(name, [{ ...at, result: "exports no backend" }], [`run \`npm install ${specifier}@latest\``]);
  }
  return loaded.backend;
}

function missing(
  name: string,
  attempts: readonly LocateAttempt[],
  ordered: readonly string[],
  why?: string,
  cause?: unknown,
) {
  const tried = attempts.map(({ from, at, result }) => `  - ${from}: ${at}: ${result}`);
  const todo = ordered.map((fix, i) => `  ${i + 1}. ${fix}`);
  return new TesseraError(
    "backend-missing",
    [`The ${name} back end can't be loaded${why === undefined ? "" : `: ${why}`}.`, "Looked for its library:", ...tried]
      .concat("What to do:", ...todo)
      .join("\n"),
    { cause },
  );
}
