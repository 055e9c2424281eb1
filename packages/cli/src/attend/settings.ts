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

/** @throws TesseraError `invalid-argument`. An empty path is most often a shell variable that isn't set. */
export function checkPaths(file: string, { output, map, library }: Settings): void {
  for (const [name, value, what] of [
    ["<file>", file, "the path of a safetensors file"],
    ["--output", output, "the file to write"],
    ["--map", map, "the file to write"],
    ["--library", library, "the path of a shared library"],
  ]) {
    if (value === "") throw new TesseraError("invalid-argument", `${name} is empty; give ${what}`);
  }
}

/** Past any that a device could do anything with, and small enough for every type they are put into. */
const largestWhole = 999_999_999;
const largestWindow = 999_999_999_999_999;

function refuse(text: string, allowed: string): never {
  throw new InvalidArgumentError(`${text === "" ? "The value is empty. " : ""}Allowed: ${allowed}.`);
}

/** Undefined if it isn't one. */
function numberOf(text: string): number | undefined {
  const value = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : Number.NaN;
  return Number.isFinite(value) ? value : undefined;
}

export function finite(text: string): number {
  return numberOf(text) ?? refuse(text, "any finite number, such as 0.125");
}

export function notNegative(text: string): number {
  const value = numberOf(text);
  return value !== undefined && value >= 0 ? value : refuse(text, "finite numbers >= 0; 0 = off");
}

export function wholeFrom(least: number): (text: string) => number {
  return (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    return value >= least && value <= largestWhole
      ? value
      : refuse(text, `whole numbers from ${least} to ${largestWhole}`);
  };
}

export function windowOf(text: string): [number, number] {
  const match = /^(-1|\d+),(-1|\d+)$/.exec(text);
  const [left, right] = [Number(match?.[1]), Number(match?.[2])];
  if (left <= largestWindow && right <= largestWindow) return [left, right];
  return refuse(text, `LEFT,RIGHT, whole numbers from -1 (unbounded) to ${largestWindow}, such as 127,0`);
}

export function append(value: string, previous: readonly string[]): readonly string[] {
  return [...previous, value];
}
