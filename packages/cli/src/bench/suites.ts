import type { SuiteName } from "@tessera/bench";
import { TesseraError } from "@tessera/core";
import { InvalidArgumentError } from "commander";

/** `--suite`, `quick` if none is given. @throws TesseraError `invalid-argument` */
export function suitesOf(given: readonly string[], known: readonly SuiteName[]): SuiteName[] {
  for (const name of given) {
    if (!(known as readonly string[]).includes(name))
      throw new TesseraError("invalid-argument", `--suite is ${name}; allowed: ${known.join(", ")}`);
  }
  return given.length === 0 ? ["quick"] : ([...new Set(given)] as SuiteName[]);
}

/** For options that take one. */
export function regexp(text: string): RegExp {
  try {
    return new RegExp(text);
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message);
  }
}
