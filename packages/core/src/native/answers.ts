/** The addon's answers (numbers of tessera.h) in the words of the TypeScript API. */
import type { DeviceInfo, Explanation, KernelInfo, ProbeState } from "../backend.js";
import { type DType, dtypes } from "../dtype.js";
import type { RawDevice, RawExplanation, RawKernel } from "./addon.js";

const states: readonly ProbeState[] = [
  "usable",
  "driver-missing",
  "driver-too-old",
  "runtime-missing",
  "no-device",
  "hidden-by-environment",
  "arch-not-in-build",
  "out-of-memory",
  "error",
];

/** The name of a `tsr_probe_state`. */
export function probeState(state: number): ProbeState {
  return states[state] ?? "error";
}

function family(id: number): "prefill" | "decode" {
  return id === 2 ? "decode" : "prefill";
}

function dtypesOf(bits: number): DType[] {
  return (Object.keys(dtypes) as DType[]).filter((name) => bits & (1 << dtypes[name].id));
}

export function deviceInfo(raw: RawDevice): DeviceInfo {
  const { caps, state, ...rest } = raw;
  return {
    ...rest,
    state: probeState(state),
    caps: { async: (caps & 1) !== 0, hostMemory: (caps & 2) !== 0, graphs: (caps & 4) !== 0 },
  };
}

export function kernelInfo(raw: RawKernel): KernelInfo {
  return { ...raw, family: family(raw.family), qDTypes: dtypesOf(raw.qDTypes), kvDTypes: dtypesOf(raw.kvDTypes) };
}

export function explanation(raw: RawExplanation): Explanation {
  const { tileQ, tileK, ...rest } = raw;
  return { ...rest, family: family(raw.family), tile: { q: tileQ, k: tileK } };
}
