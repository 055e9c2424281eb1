import type { ExitCode } from "./exit.js";

/** What a command may do to the outside, so that a test can look on. */
export interface Io {
  out(text: string): void;
  err(text: string): void;
  setExitCode(code: ExitCode): void;
}
