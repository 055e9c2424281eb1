/**
 * The child process in which a back end is probed, so that a crash or a hang of its driver stays there.
 * node probe-child.js ADDON LIBRARY: the answer is JSON on file descriptor 3. Imports nothing of ours, so that it can
 * fail in no other way.
 */
import { writeSync } from "node:fs";
import { createRequire } from "node:module";
import type { Addon, LoadError, RawDevice, RawProbe } from "./native/addon.js";

export type ChildAnswer =
  | { readonly name: string; readonly version: string; readonly probe: RawProbe; readonly devices: RawDevice[] }
  | { readonly state: string; readonly reason: string };

function answer(addonPath: string, libraryPath: string): ChildAnswer {
  try {
    const addon = createRequire(import.meta.url)(addonPath) as Addon;
    const library = addon.load(libraryPath);
    const probe = library.probe();
    const devices = Array.from({ length: probe.deviceCount }, (_, index) => library.deviceInfo(index));
    return { name: library.name, version: library.version, probe, devices };
  } catch (error) {
    return { state: (error as Partial<LoadError>).state ?? "error", reason: (error as Error).message };
  }
}

writeSync(3, JSON.stringify(answer(process.argv[2]!, process.argv[3]!)));
