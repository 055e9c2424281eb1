import { backendNames, openEngine, type ProbeReport } from "@tessera/core";

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

/** @throws TesseraError `invalid-argument` if TESSERA_BACKEND is no back end */
export async function checkAsked(): Promise<void> {
  const asked = process.env.TESSERA_BACKEND;
  if (!asked || ["auto", ...backendNames].includes(asked)) return;
  // The engine refuses the name before it looks at a device; so every command says the same.
  (await openEngine()).dispose();
}
