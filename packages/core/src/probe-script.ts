/**
 * The program of the child process in which a back end is probed, so that a crash or a hang of its driver stays there.
 * node -e SCRIPT ADDON LIBRARY: the answer is JSON on file descriptor 3. As text, so that a bundle has it too; it imports
 * nothing of ours, so that it can fail in no other way.
 */
import type { RawDevice, RawProbe } from "./native/addon.js";

export type ChildAnswer =
  | { readonly name: string; readonly version: string; readonly probe: RawProbe; readonly devices: RawDevice[] }
  | { readonly state: string; readonly reason: string };

export const probeScript = `
const [, addonPath, libraryPath] = process.argv;
function answer() {
  try {
    const library = require(addonPath).load(libraryPath);
    const probe = library.probe();
    const devices = Array.from({ length: probe.deviceCount }, (_, index) => library.deviceInfo(index));
    return { name: library.name, version: library.version, probe, devices };
  } catch (error) {
    return { state: error.state ?? "error", reason: error.message };
  }
}
require("node:fs").writeSync(3, JSON.stringify(answer()));
`;
