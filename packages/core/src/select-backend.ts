/** Which back end and device an engine uses: the one that is asked for, or the best that works. */
import type { Backend, DeviceInfo, ProbeState } from "./backend.js";
import { TesseraError, type TesseraErrorCode } from "./error.js";
import { fixSteps, whatToDo } from "./fixes.js";
import { describe, list } from "./host-tensor.js";
import { invalid } from "./invalid.js";
import { checkNames, checkWhole, suggestion } from "./option-names.js";

/** Names that `openEngine` knows; a library of your own may call itself anything. */
export type BackendChoice = "auto" | "cuda" | "hip" | "webgpu" | "cpu" | "reference";

/** Options of `openEngine`. */
export type EngineOptions = {
  /** Device of the back end. Default: its first usable one. One that is named is used or nothing is. */
  readonly device?: number | undefined;
  /** Threads that a CPU computes with. Default: TESSERA_THREADS, else the cores that the process may use. */
  readonly threads?: number | undefined;
} & (
  | {
      /**
       * Default: TESSERA_BACKEND, else "auto", the best that works. A back end that is named is used or nothing is: no
       * other takes its place. A back end that you made yourself (`webgpu` of @tessera/webgpu) is taken as it is.
       */
      readonly backend?: BackendChoice | Backend | undefined;
      readonly library?: undefined;
    }
  | {
      /** Absolute path of a library that speaks tessera.h, in place of a named back end. */
      readonly library?: string | undefined;
      readonly backend?: undefined;
    }
);

/** One back end that was looked at. */
export interface Tried {
  readonly backend: string;
  readonly state: ProbeState;
  /** Why it wasn't used; empty for the one that was. */
  readonly reason: string;
  /** What would mend it, if known. */
  readonly fix: string;
}

/** How an engine came to its device. */
export interface Selection {
  /** "auto", or the back end or library that was asked for. */
  readonly requested: string;
  /** Who asked: the caller, TESSERA_BACKEND, or nobody. */
  readonly requestedBy: "option" | "environment" | "default";
  readonly chosen: string;
  readonly device: number;
  /** In a sentence. */
  readonly reason: string;
  /** In order of preference. */
  readonly tried: readonly Tried[];
}

/** What is known of a back end before it is loaded. */
export interface Report {
  readonly backend: string;
  readonly state: ProbeState;
  readonly reason: string;
  readonly fix: string;
  readonly devices: readonly DeviceInfo[];
}

/** Where back ends come from: the machine, or in tests a table. */
export interface World {
  /** Best first. */
  readonly names: readonly string[];
  probe(which: { readonly backends?: readonly string[]; readonly library?: string }): Promise<readonly Report[]>;
  load(which: string | { readonly library: string }): Promise<Backend>;
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/** A back end that is loaded, and the device of it. */
export interface Selected {
  readonly backend: Backend;
  readonly device: number;
  readonly selection: Selection;
}

const optionNames = new Set(["backend", "device", "library", "threads"]);

const codes: Partial<Record<ProbeState, TesseraErrorCode>> = {
  "package-missing": "backend-missing",
  "wrong-libc": "backend-missing",
  "version-mismatch": "abi-mismatch",
  "load-failed": "backend-missing",
  "not-a-backend": "backend-missing",
  "abi-mismatch": "abi-mismatch",
  "out-of-memory": "out-of-memory",
};

/** @throws TesseraError `invalid-argument`, `backend-missing`, `abi-mismatch`, `device-unavailable` */
export async function selectBackend(options: EngineOptions, world: World): Promise<Selected> {
  checkNames(options, optionNames, "openEngine");
  const { device, library, threads } = options;
  if (device !== undefined) checkWhole(device, 0, "device", 0x7fffffff);
  if (threads !== undefined) checkWhole(threads, 1, "threads", 0x7fffffff);
  if (library !== undefined) {
    if (typeof library !== "string" || library === "")
      throw invalid(`library is ${describe(library)}; allowed: the absolute path of a library`);
    if (options.backend !== undefined) throw invalid("backend and library are both given; allowed: one of them");
    const [report] = await world.probe({ library });
    const chosen = usableDevice(report!, device, library);
    const backend = await world.load({ library });
    return selected(backend, chosen, {
      requested: library,
      requestedBy: "option",
      tried: [tried(report!, "")],
      reason: "asked for",
    });
  }
  if (isBackend(options.backend)) return given(options.backend, device);
  const fromEnvironment = options.backend === undefined && Boolean(world.environment.TESSERA_BACKEND);
  const name = options.backend ?? (world.environment.TESSERA_BACKEND || "auto");
  const requestedBy = fromEnvironment ? "environment" : options.backend === undefined ? "default" : "option";
  const allowed = ["auto", ...world.names];
  if (typeof name !== "string" || !allowed.includes(name)) {
    const what = fromEnvironment ? "TESSERA_BACKEND" : "backend";
    throw invalid(`${what} is ${describe(name)}; allowed: ${list(allowed)}.${suggestion(String(name), allowed)}`);
  }
  if (name === "auto") return automatic(world, device, requestedBy);

  const [report] = await world.probe({ backends: [name] });
  const chosen = usableDevice(report!, device, name);
  const reason = fromEnvironment ? "TESSERA_BACKEND asks for it" : "asked for";
  return selected(await world.load(name), chosen, {
    requested: name,
    requestedBy,
    tried: [tried(report!, "")],
    reason,
  });
}

function isBackend(value: unknown): value is Backend {
  return typeof value === "object" && value !== null && typeof (value as Partial<Backend>).open === "function";
}

async function given(backend: Backend, device: number | undefined): Promise<Selected> {
  const { name } = backend;
  const report: Report = { ...(await backend.probe()), backend: name };
  const chosen = usableDevice(report, device, name);
  return selected(backend, chosen, {
    requested: name,
    requestedBy: "option",
    tried: [tried(report, "")],
    reason: "asked for",
  });
}

type How = Omit<Selection, "chosen" | "device">;

function selected(backend: Backend, device: DeviceInfo, how: How): Selected {
  return { backend, device: device.index, selection: { ...how, chosen: backend.name, device: device.index } };
}

function tried(report: Report, reason: string): Tried {
  return { backend: report.backend, state: report.state, reason, fix: reason === "" ? "" : report.fix };
}

/** Why a report's device can't be used; undefined if it can. */
function whyNot(report: Report, wanted: number | undefined): string | undefined {
  if (report.state !== "usable") return report.reason || report.state;
  if (wanted === undefined) {
    if (report.devices.some(({ state }) => state === "usable")) return undefined;
    return (
      report.devices.map(({ index, name, reason }) => `device ${index} (${name}): ${reason}`).join("; ") ||
      "it has no device"
    );
  }
  const device = report.devices.find(({ index }) => index === wanted);
  if (!device)
    return `it has no device ${wanted}, only ${report.devices.map(({ index }) => index).join(", ") || "none"}`;
  return device.state === "usable" ? undefined : `device ${wanted} (${device.name}): ${device.reason || device.state}`;
}

/** The device that a named back end offers. */
function usableDevice(report: Report, wanted: number | undefined, name: string): DeviceInfo {
  const reason = whyNot(report, wanted);
  if (reason === undefined) return deviceOf(report, wanted);
  const code = report.state === "usable" ? "device-unavailable" : (codes[report.state] ?? "device-unavailable");
  const fix = report.fix || report.devices.find(({ index }) => index === (wanted ?? index))?.fix;
  throw new TesseraError(
    code,
    `${name} can't be used (${report.state === "usable" ? "no such usable device" : report.state}): ${reason}${whatToDo(fix ?? "")}`,
  );
}

/** A GPU that the CPU plays is slower than the CPU's own back end: it is used if it is asked for. */
function emulation(report: Report, wanted: number | undefined): string | undefined {
  const { name, caps } = deviceOf(report, wanted);
  return caps.emulated ? `device ${name} is played by the CPU; name the back end to use it` : undefined;
}

function deviceOf(report: Report, wanted: number | undefined): DeviceInfo {
  return report.devices.find(({ index, state }) => (wanted === undefined ? state === "usable" : index === wanted))!;
}

/** The first that works. What doesn't is in the selection, and nothing is silent. */
async function automatic(
  world: World,
  device: number | undefined,
  requestedBy: Selection["requestedBy"],
): Promise<Selected> {
  const reports = await world.probe({});
  const attempts: Tried[] = [];
  for (const report of reports) {
    // A device that is named is never replaced by plain TypeScript.
    const unwanted = device !== undefined && report.backend === "reference";
    const reason = unwanted
      ? "it stands in only where no device is asked for"
      : (whyNot(report, device) ?? emulation(report, device));
    if (reason !== undefined) {
      attempts.push(tried(report, reason));
      continue;
    }
    try {
      const backend = await world.load(report.backend);
      const passed = attempts.map(({ backend, state }) => `${backend}: ${state}`).join(", ");
      const how = { requested: "auto", requestedBy, tried: [...attempts, tried(report, "")] };
      const why = passed === "" ? "the best of all" : `the best that works here (${passed})`;
      return selected(backend, deviceOf(report, device), { ...how, reason: why });
    } catch (error) {
      attempts.push({ ...tried(report, (error as Error).message), state: "load-failed" });
    }
  }
  const all = attempts.map(({ backend, reason }) => `  - ${backend}: ${reason}`);
  const fixes = attempts.flatMap(({ backend, fix }) => fixSteps(fix).map((step) => `${backend}: ${step}`));
  const what = device === undefined ? "no back end can be used" : `no back end has a usable device ${device}`;
  throw new TesseraError("device-unavailable", [`${what}:`, ...all].join("\n") + whatToDo(fixes));
}
