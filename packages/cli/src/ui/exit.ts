import { TesseraError, type TesseraErrorCode } from "@tessera/core";

/** What the command tells a script. */
export const exit = {
  good: 0,
  /** The answer is "no": out of tolerance, not conformant. */
  no: 1,
  /** Wrong usage, or a file that can't be read, is invalid or isn't a back end. */
  usage: 2,
  /** No device of this machine can do it, or its memory is too small: the input may be good. */
  device: 3,
  /** Ctrl-C, with the result of what was done until then. */
  interrupted: 130,
} as const;

export type ExitCode = (typeof exit)[keyof typeof exit];

const ofCode: { readonly [code in TesseraErrorCode]: ExitCode } = {
  "invalid-argument": exit.usage,
  "invalid-file": exit.usage,
  "abi-mismatch": exit.usage,
  unsupported: exit.usage,
  "backend-missing": exit.device,
  "device-unavailable": exit.device,
  "out-of-memory": exit.device,
  "device-error": exit.device,
};

export function exitCodeOf(error: unknown): ExitCode {
  return error instanceof TesseraError ? ofCode[error.code] : exit.no;
}

/** Everything in a reply but undefined, with what JSON has no number for as a string. */
export function toJson(value: unknown): string {
  return `${JSON.stringify(
    value,
    (_, entry: unknown) => (typeof entry === "number" && !Number.isFinite(entry) ? String(entry) : entry),
    2,
  )}\n`;
}
