/** Why a call failed, for programs. */
export type TesseraErrorCode =
  | "unsupported"
  | "invalid-argument"
  | "invalid-file"
  | "backend-missing"
  | "abi-mismatch"
  | "device-unavailable"
  | "out-of-memory"
  | "device-error";

const brand = Symbol.for("tessera.error");

/**
 * Every failure that Tessera reports. `message` names the argument, the value and the allowed values.
 * `instanceof` also holds for errors of another copy of this package in the process.
 */
export class TesseraError extends Error {
  override readonly name = "TesseraError";
  readonly code: TesseraErrorCode;

  constructor(code: TesseraErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
    Object.defineProperty(this, brand, { value: true });
  }

  static override [Symbol.hasInstance](value: unknown): boolean {
    return typeof value === "object" && value !== null && (value as Record<symbol, unknown>)[brand] === true;
  }
}
