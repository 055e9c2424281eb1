/** Which back ends and devices can be used here, and if not, why not and what would mend it. */

import type { BackendProbe } from "./backend.js";
import {
  type BackendName,
  backendKinds,
  backendNames,
  damageFix,
  loadBackend,
  loadFailure,
  moduleFix,
} from "./backends.js";
import { TesseraError } from "./error.js";
import { deviceInfo, probeState } from "./native/answers.js";
import { damage, visibleDamage } from "./native/intact.js";
import { type LocateAttempt, locate, locateModule } from "./native/locate.js";
import { nativeLibrary } from "./native/native-library.js";
import { type ProbeEnd, runProbeChild } from "./probe-process.js";
import { version } from "./version.js";

export interface ProbeOptions {
  /** Which to probe; all by default. */
  readonly backends?: readonly BackendName[] | undefined;
  /** Absolute path of one library to probe, in place of the named ones. */
  readonly library?: string | undefined;
  /** Milliseconds that a back end may take. Default TESSERA_PROBE_TIMEOUT_MS, else 10,000. */
  readonly timeoutMs?: number | undefined;
  /** Ask again rather than give the answer of an earlier call of this process. */
  readonly fresh?: boolean | undefined;
}

/** What was found of one back end. */
export interface ProbeReport extends BackendProbe {
  /** Its name; of a library given by path, what the library calls itself, or its path. */
  readonly backend: string;
  readonly library?: string | undefined;
  readonly version?: string | undefined;
  /** Where its library was looked for. */
  readonly attempts: readonly LocateAttempt[];
}

const defaultTimeout = 10_000;
const longestTimeout = 2 ** 31 - 1;

const cache = new Map<string, Promise<ProbeReport>>();

/**
 * Probes every back end, each native one in a child process of its own, at the same time. In the order of
 * `backendNames`. Never rejects because of a back end: what went wrong is in its report.
 */
export async function probe(options: ProbeOptions = {}): Promise<ProbeReport[]> {
  const timeoutMs = timeoutOf(options);
  const { library } = options;
  if (library !== undefined)
    return [await remembered(options, library, () => probeLibrary(library, timeoutMs, library))];
  for (const name of options.backends ?? []) {
    if (!backendNames.includes(name))
      throw new TesseraError("invalid-argument", `backends has "${name}", expected ${backendNames.join(", ")}`);
  }
  const names = backendNames.filter((name) => options.backends?.includes(name) ?? true);
  return Promise.all(names.map((name) => remembered(options, name, () => probeNamed(name, timeoutMs))));
}

function timeoutOf({ timeoutMs }: ProbeOptions): number {
  const given = timeoutMs ?? process.env.TESSERA_PROBE_TIMEOUT_MS;
  if (given === undefined || given === "") return defaultTimeout;
  const value = Number(given);
  if (value > 0 && value <= longestTimeout) return value;
  const what = timeoutMs === undefined ? "TESSERA_PROBE_TIMEOUT_MS" : "timeoutMs";
  throw new TesseraError("invalid-argument", `${what} is ${given}, expected milliseconds from 1 to ${longestTimeout}`);
}

function remembered(options: ProbeOptions, what: string, ask: () => Promise<ProbeReport>): Promise<ProbeReport> {
  const key = `${what}\n${surroundings()}`;
  let answer = options.fresh ? undefined : cache.get(key);
  if (answer === undefined) {
    answer = ask();
    cache.set(key, answer);
  }
  return answer;
}

// What an answer depends on.
const variables =
  /^(TESSERA_|CUDA_|NVIDIA_|HIP_|ROCR_|ROCM_|HSA_|GPU_DEVICE_ORDINAL$|VK_|LD_LIBRARY_PATH$|LD_PRELOAD$)/;

function surroundings(): string {
  const relevant = Object.keys(process.env).filter((name) => variables.test(name));
  return [process.cwd(), ...relevant.sort().map((name) => `${name}=${process.env[name]}`)].join("\n");
}

function probeNamed(name: BackendName, timeoutMs: number): Promise<ProbeReport> {
  return backendKinds[name] === "library" ? probeLibrary(name, timeoutMs) : probeHere(name);
}

// Back ends in TypeScript are asked in this process: what they need of a driver is asked by the package that they use.
async function probeHere(name: BackendName): Promise<ProbeReport> {
  try {
    const backend = await loadBackend(name);
    return { ...(await backend.probe()), backend: name, version: backend.version, attempts: [] };
  } catch (error) {
    const { module, state, attempts } = locateModule(name);
    const tried = attempts.map(({ at, result }) => `${at}: ${result}`).join("; ");
    return {
      backend: name,
      state: module === undefined ? state : "load-failed",
      reason: module === undefined ? tried : (error as Error).message,
      fix: moduleFix(name),
      devices: [],
      attempts,
    };
  }
}

async function probeLibrary(name: string, timeoutMs: number, path?: string): Promise<ProbeReport> {
  const { library, attempts, state, fixes } = locate(name, path);
  const report = { backend: name, attempts, devices: [] };
  if (library === undefined) {
    const reason = attempts.map(({ at, result }) => `${at}: ${result}`).join("; ");
    return { ...report, state, reason, fix: fixes.join("; or ") };
  }
  const native = nativeLibrary();
  if (native.addon === undefined) {
    return { ...report, library, state: native.state, reason: native.reason, fix: native.fix };
  }
  const bad = (words: string) =>
    ({ ...report, library, state: "load-failed", reason: `${library} ${words}`, fix: damageFix(name) }) as const;
  const visible = visibleDamage(library);
  if (visible !== undefined) return bad(visible);
  // All of it is read while the child is at work. Damage that shows only there may crash the child: it is told first.
  const [end, damaged] = await Promise.all([runProbeChild(native.path, library, timeoutMs), damage(library)]);
  if (damaged !== undefined) return bad(damaged);
  return { ...report, library, ...understood(name, library, end, timeoutMs) };
}

type Understood = BackendProbe & { readonly backend?: string; readonly version?: string };

function understood(name: string, library: string, end: ProbeEnd, timeoutMs: number): Understood {
  const bad = { devices: [] };
  switch (end.kind) {
    case "timed-out":
      return {
        ...bad,
        state: "timed-out",
        reason: `its probe gave no answer within ${timeoutMs} ms and was stopped`,
        fix: "see whether the driver answers its own tools (nvidia-smi, rocminfo); or set TESSERA_PROBE_TIMEOUT_MS to a longer limit",
      };
    case "crashed":
      return {
        ...bad,
        state: "crashed",
        reason: `its probe crashed: ${end.how}${end.said === "" ? "" : ` (${end.said})`}`,
        fix: `update the driver; or run \`npm install @tessera/${name}@${version}\` again; or report it with the output of \`tessera doctor --json\` (other back ends are not affected)`,
      };
    case "not-started":
      return { ...bad, state: "error", reason: `no process for its probe: ${end.how}`, fix: "" };
    case "answered":
      break;
  }
  const { answer } = end;
  if ("reason" in answer) return { ...bad, ...loadFailure(name, library, answer.state, answer.reason) };
  const { state, reason, fix } = answer.probe;
  return {
    backend: answer.name,
    version: answer.version,
    state: probeState(state),
    reason,
    fix,
    devices: answer.devices.map(deviceInfo),
  };
}
