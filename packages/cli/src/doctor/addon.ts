import { nativeLibrary } from "@tessera/core";
import type { AddonFinding } from "./findings.js";

export function addon(): AddonFinding {
  const found = nativeLibrary();
  if (found.addon !== undefined) return { path: found.path, state: "loaded", fix: "" };
  const tried = found.attempts.map(({ path, result }) => `${path}: ${result}`).join("; ");
  return { path: "tessera.node", state: `${found.state}: ${tried}`, fix: found.fix };
}
