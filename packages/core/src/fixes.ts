/** The one form in which a cause and its ordered fixes are told: by errors, `probe` and `tessera doctor` alike. */

/** What mends a file of ours that isn't as it was published. */
export const damagedFix = "delete node_modules and run `npm install` again; or build it again, if you built it";

/** The steps of a `fix`, best first. */
export function fixSteps(fix: string): string[] {
  return fix.split("; or ").filter((step) => step !== "");
}

/** "What to do:" and the numbered steps, on lines of their own; empty if nothing is known to help. */
export function whatToDo(fix: string | readonly string[]): string {
  const steps = typeof fix === "string" ? fixSteps(fix) : fix;
  if (steps.length === 0) return "";
  return ["\nWhat to do:", ...steps.map((step, i) => `  ${i + 1}. ${step}`)].join("\n");
}
