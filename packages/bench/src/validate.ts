/** Result files are held to their schema, and to what a schema can't say. */
import { readFileSync } from "node:fs";
import Ajv, { type ValidateFunction } from "ajv/dist/2020.js";
import { type ResultFile, resultVersion } from "./result.js";

/** What a file is that can't be used, and why; the message names the file. */
export class BadResult extends Error {
  override readonly name = "BadResult";
}

/** What a stranger's file makes us say stays of a length that can be read. */
const clip = (text: string) => (text.length > 400 ? `${text.slice(0, 397)}...` : text);

let compiled: ValidateFunction | undefined;

function validator(): ValidateFunction {
  // The class is the default of a CommonJS module, and which one depends on who loads it.
  const Class = (Ajv as unknown as { default?: typeof Ajv }).default ?? Ajv;
  compiled ??= new (Class as unknown as typeof import("ajv/dist/2020.js").default)({
    allErrors: false,
    strict: true,
    allowUnionTypes: true,
  }).compile(JSON.parse(readFileSync(new URL("../schema/result-1.json", import.meta.url), "utf8")));
  return compiled;
}

/** @throws BadResult naming `name` and the member that is wrong */
export function validateResult(value: unknown, name: string): ResultFile {
  const refuse = (why: string): never => {
    throw new BadResult(`${name}: ${clip(why)}`);
  };
  const given = value as Partial<ResultFile> | null;
  if (typeof given !== "object" || given === null || given.format !== "tessera-bench")
    refuse("is no result of `tessera bench`");
  if (given!.version !== resultVersion)
    refuse(`is a result of version ${JSON.stringify(given!.version)}; this program reads version ${resultVersion}`);
  const validate = validator();
  if (!validate(value)) {
    const { instancePath, message = "is wrong", params } = validate.errors![0]!;
    const what = Object.values(params).map((one) => JSON.stringify(one));
    refuse(`${instancePath.slice(1).replaceAll("/", ".") || "the file"} ${message} (${what.join(", ")})`);
  }
  const result = value as ResultFile;
  const keys = new Set(result.devices.map(({ key }) => key));
  if (keys.size < result.devices.length) refuse("two devices have the same key");
  for (const [i, { device, samples, median, kind }] of result.measurements.entries()) {
    if (!keys.has(device)) refuse(`measurements.${i}.device is ${device}, which is none of its devices`);
    if (kind === "memory") continue;
    if (samples.length === 0) refuse(`measurements.${i} has no samples`);
    // Not Math.min(...samples): arguments of a call are few, samples of a file may be many.
    if (!(samples.some((one) => one <= median) && samples.some((one) => one >= median)))
      refuse(`measurements.${i}.median is not among its samples`);
  }
  for (const [i, { device }] of (result.profiles ?? []).entries())
    if (!keys.has(device)) refuse(`profiles.${i}.device is ${device}, which is none of its devices`);
  return result;
}

/** @throws BadResult also if it isn't JSON; NaN isn't */
export function parseResult(text: string, name: string): ResultFile {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new BadResult(`${name}: is damaged: ${clip((error as Error).message)}`);
  }
  return validateResult(value, name);
}
