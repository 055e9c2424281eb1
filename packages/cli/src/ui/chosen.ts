import type { ProbeReport } from "@tessera/core";

export interface Chosen {
  readonly backend: string;
  readonly device: number;
}

/** The device that an engine opened without further options takes: the first usable one, of TESSERA_BACKEND if set. */
export function chosenDevice(reports: readonly ProbeReport[]): Chosen | undefined {
  const asked = process.env.TESSERA_BACKEND;
  for (const { backend, state, devices } of reports) {
    if (asked && asked !== "auto" && backend !== asked) continue;
    const device = state === "usable" ? devices.find((d) => d.state === "usable") : undefined;
    if (device !== undefined) return { backend, device: device.index };
  }
  return undefined;
}
