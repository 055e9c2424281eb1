/** What only opening the device shows: variables that the engine refuses, and devices that don't open. */
import { openEngine, TesseraError } from "@tessera/core";

export interface Opened {
  /** What the engine says of each variable that it refuses, by name. */
  readonly refused: ReadonlyMap<string, string>;
  /** Why the device doesn't open though the variables are right. */
  readonly failure: TesseraError | undefined;
}

interface Instead {
  readonly backend?: "auto";
  readonly threads?: number;
}

/** A value in place of a variable's, to see what is wrong apart from it. */
const instead: { readonly [name: string]: Instead } = {
  TESSERA_BACKEND: { backend: "auto" },
  TESSERA_THREADS: { threads: 1 },
};

export async function opens(): Promise<Opened> {
  const refused = new Map<string, string>();
  let options: Instead = {};
  for (;;) {
    try {
      (await openEngine(options)).dispose();
      return { refused, failure: undefined };
    } catch (error) {
      if (!(error instanceof TesseraError)) throw error;
      const name = error.code === "invalid-argument" ? /^TESSERA_[A-Z_]+/.exec(error.message)?.[0] : undefined;
      if (name === undefined || refused.has(name)) return { refused, failure: error };
      refused.set(name, error.message);
      if (instead[name] === undefined) return { refused, failure: undefined };
      options = { ...options, ...instead[name] };
    }
  }
}
