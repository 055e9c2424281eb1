import { nativeLibrary } from "@tessera/core";
import type { AddonFinding } from "./findings.js";

export function addon(): AddonFinding {
  const found = nativeLibrary();
  if (found.addon !== undefined) return { path: found.path, state: "loaded", fix: "" };
  const last = found.attempts.at(-1);
  const tried = found.attempts.map(({ path, result }) => `${path}: ${result}`).join("; ");
  return { path: last?.path ?? "tessera.node", state: tried, fix: found.fix };
}
