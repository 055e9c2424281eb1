/** What the user asked of `attend`: flags to values, each checked before a file is opened. */
import { type CacheDType, TesseraError } from "@tessera/core";
import { InvalidArgumentError } from "commander";

/** Flags as commander hands them over. */
export interface Settings {
  readonly output?: string;
  readonly prefix: readonly string[];
  readonly causal?: boolean;
  readonly align?: "bottom-right" | "top-left";
  readonly window?: readonly [number, number];
  readonly scale?: number;
  readonly softcap?: number;
  readonly backend?: string;
  readonly device?: number;
  readonly library?: string;
  readonly threads?: number;
  readonly kernel?: string;
  readonly numSplits?: number;
  readonly kvDtype?: CacheDType;
  readonly check?: boolean;
  readonly map?: string;
  readonly head?: number;
  readonly json?: boolean;
}

export const cacheTypes = ["f16", "bf16", "f32", "f8_e4m3", "q8_0", "q4_0"] as const satisfies readonly CacheDType[];

/** @throws TesseraError `invalid-argument` for flags that contradict each other */
export function checkSettings(settings: Settings): void {
  const refuse = (message: string): never => {
    throw new TesseraError("invalid-argument", message);
  };
  const { prefix } = settings;
  if (settings.head !== undefined && settings.map === undefined)
    refuse("--head chooses what --map draws; add --map FILE.svg");
  if (new Set(prefix).size < prefix.length) refuse(`--prefix is given twice with one value: ${prefix.join(", ")}`);
  if (settings.map !== undefined && prefix.length > 1) {
    refuse(`--map draws one prefix; --prefix is given ${prefix.length} times: ${prefix.join(", ")}`);
  }
  if (settings.library !== undefined && settings.backend !== undefined) {
    refuse("--library names the back end itself; leave --backend out");
  }
}

export function finite(text: string): number {
  const value = Number(text);
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) || !Number.isFinite(value)) {
    throw new InvalidArgumentError("Allowed: any finite number, such as 0.125.");
  }
  return value;
}

export function notNegative(text: string): number {
  const value = finite(text);
  if (value < 0) throw new InvalidArgumentError("Allowed: finite numbers >= 0; 0 = off.");
  return value;
}

export function wholeFrom(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d{1,9}$/.test(text) || value < least) {
      throw new InvalidArgumentError(`Allowed: whole numbers from ${least} on.`);
    }
    return value;
  };
}

export function windowOf(text: string): [number, number] {
  const match = /^(-1|\d{1,15}),(-1|\d{1,15})$/.exec(text);
  if (match === null) {
    throw new InvalidArgumentError("Allowed: LEFT,RIGHT, whole numbers from -1 (unbounded) on, such as 127,0.");
  }
  return [Number(match[1]), Number(match[2])];
}

export function append(value: string, previous: readonly string[]): readonly string[] {
  return [...previous, value];
}
