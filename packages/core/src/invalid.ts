import { TesseraError } from "./error.js";

/** A mistake in the arguments: `message` names the argument, its value and the allowed ones. */
export const invalid = (message: string) => new TesseraError("invalid-argument", message);
