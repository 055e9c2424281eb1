/** The one ordered list of back ends, and how one of them is loaded. */
import type { Backend, ProbeState, PromptBackend } from "./backend.js";
import { TesseraError, type TesseraErrorCode } from "./error.js";
import { damagedFix, fixSteps, whatToDo } from "./fixes.js";
import { type LoadError, toTesseraError } from "./native/addon.js";
import { damage } from "./native/intact.js";
import { type LocateAttempt, locate, locateModule } from "./native/locate.js";
import { NativeBackend } from "./native/native-backend.js";
import { nativeLibrary } from "./native/native-library.js";
import { wrongLibc } from "./native/platform.js";
import { referenceBackend } from "./reference/index.js";
import { version } from "./version.js";

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
export async function loadBackend(
  which: Exclude<BackendName, "webgpu"> | { readonly library: string },
): Promise<PromptBackend>;
export async function loadBackend(which: BackendName | { readonly library: string }): Promise<Backend>;
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

async function loadLibrary(name: string, library?: string): Promise<Backend> {
  const located = locate(name, library);
  if (located.library === undefined) {
    const code = located.state === "version-mismatch" ? "abi-mismatch" : "backend-missing";
    throw missing(name, located.attempts, located.fixes, { code });
  }
  const native = nativeLibrary();
  if (native.addon === undefined) {
    const apart = native.state === "version-mismatch" || native.state === "abi-mismatch";
    const code = apart ? "abi-mismatch" : "backend-missing";
    throw missing(name, located.attempts, fixSteps(native.fix), { why: native.reason, code });
  }
  const damaged = await damage(located.library);
  if (damaged !== undefined) {
    throw new TesseraError("backend-missing", `${located.library} ${damaged}${whatToDo(damageFix(name))}`);
  }
  try {
    return new NativeBackend(native.addon, native.addon.load(located.library));
  } catch (thrown) {
    const { code, message } = toTesseraError(thrown);
    const failure = loadFailure(name, located.library, (thrown as LoadError).state, message);
    throw new TesseraError(code, `${failure.reason}${whatToDo(failure.fix)}`, { cause: thrown });
  }
}

const isOurs = (name: string) => (backendNames as readonly string[]).includes(name);

/** What mends a file that isn't as it was published. */
export function damageFix(name: string): string {
  if (!isOurs(name)) return "put the whole file there, built for this machine";
  return damagedFix;
}

export interface LoadFailure {
  readonly state: ProbeState;
  readonly reason: string;
  readonly fix: string;
}

/** A library that is there but doesn't load: what that comes to, and what mends it. */
export function loadFailure(name: string, path: string, state: string, message: string): LoadFailure {
  const libc = state === "load-failed" ? wrongLibc(path, message) : undefined;
  if (libc !== undefined) return { state: "wrong-libc", reason: libc.reason, fix: libc.fixes.join("; or ") };
  const cut = state === "load-failed" && /file too short|invalid ELF header/.test(message);
  return { state: state as ProbeState, reason: message, fix: cut ? damageFix(name) : loadFix(name, state) };
}

function loadFix(name: string, state: string): string {
  if (state === "abi-mismatch") {
    if (!isOurs(name)) return "build it against this version's tessera.h";
    return `run \`npm install @tessera/core@${version} @tessera/${name}@${version}\``;
  }
  if (state === "not-a-backend") return "give the path of a library that exports tsr_backend_entry (tessera.h)";
  if (state !== "load-failed") return "";
  const again = `; or run \`npm install @tessera/${name}@${version}\` again`;
  return `install what the message names${isOurs(name) ? again : ""}`;
}

/** Whose `create` gives WebGPU in Node, and the version that was tested. Browsers need no package. */
const companions: { readonly [name: string]: string } = { webgpu: "webgpu@0.6.2" };

/** What installs a back end that is a module. */
export function moduleFix(name: BackendName): string {
  return `run \`${["npm install", `@tessera/${name}@${version}`, companions[name]].filter(Boolean).join(" ")}\``;
}

async function loadModule(name: BackendName): Promise<Backend> {
  const { module, state, attempts } = locateModule(name);
  if (module === undefined) {
    const code = state === "version-mismatch" ? "abi-mismatch" : "backend-missing";
    throw missing(name, attempts, [moduleFix(name)], { code });
  }
  let loaded: { backend?: Backend };
  try {
    loaded = (await import(module)) as { backend?: Backend };
  } catch (cause) {
    throw missing(name, attempts, [moduleFix(name)], { why: (cause as Error).message, cause });
  }
  if (loaded.backend === undefined) throw missing(name, attempts, [moduleFix(name)], { why: "it exports no backend" });
  return loaded.backend;
}

function missing(
  name: string,
  attempts: readonly LocateAttempt[],
  ordered: readonly string[],
  { why, cause, code = "backend-missing" }: { why?: string; cause?: unknown; code?: TesseraErrorCode } = {},
) {
  const tried = attempts.map(({ from, at, result }) => `\n  - ${from}: ${at}: ${result}`).join("");
  const what = `The ${name} back end can't be loaded${why === undefined ? "" : `: ${why}`}.`;
  return new TesseraError(code, `${what}\nLooked for its library:${tried}${whatToDo(ordered)}`, { cause });
}
