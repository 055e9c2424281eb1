import type { ProbeReport } from "@tessera/core";

/** Why a back end can't be used, in one line if all there is to say is that nobody installed it. */
export function causeOf({ backend, state, reason, attempts }: ProbeReport): string {
  const plain = state === "package-missing" && attempts.every(({ result }) => result === "is not installed");
  return plain ? `the package @tessera/${backend} is not installed` : reason;
}

/** What would help, best first. */
export function fixesOf({ fix }: { readonly fix: string }): string[] {
  return fix.split("; or ").filter((step) => step !== "");
}

/** Further lines of a text under its first. */
export function hang(text: string, indent: string): string {
  return text.trimEnd().replaceAll("\n", `\n${indent}`);
}
