import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { type BackendChoice, type Engine, openEngine, TesseraError } from "@tessera/core";
import { SafetensorsFile } from "../safetensors/read.js";
import { type TensorToWrite, writeSafetensors } from "../safetensors/write.js";
import { checkTarget } from "../ui/atomic.js";
import { type ExitCode, exit, toJson } from "../ui/exit.js";
import type { Io } from "../ui/io.js";
import { Progress } from "../ui/progress.js";
import { type Verdict, verify } from "./check.js";
import { checkPresent, readInputs } from "./inputs.js";
import { writeMap } from "./map.js";
import { describe, type Report, toReport } from "./report.js";
import { compute } from "./run.js";
import type { Settings } from "./settings.js";

/** `tessera attend`. @throws TesseraError */
export async function attend(path: string, settings: Settings, io: Io): Promise<ExitCode> {
  const prefixes = settings.prefix.length === 0 ? [""] : settings.prefix;
  const progress = new Progress();
  const file = await SafetensorsFile.open(path);
  let engine: Engine | undefined;
  try {
    for (const prefix of prefixes) checkPresent(file, prefix);
    if (settings.output !== undefined) await checkTarget("--output", settings.output);
    if (settings.map !== undefined) await checkTarget("--map", settings.map);
    progress.show("opening the device");
    engine = await open(settings);
    const reports: Report[] = [];
    const outputs: TensorToWrite[] = [];
    for (const prefix of prefixes) {
      const inputs = await readInputs(file, prefix);
      progress.show(`${prefix} attention`.trim());
      const result = await compute(engine, inputs, settings);
      let verdict: Verdict | undefined;
      if (settings.check) verdict = await verify(path, inputs, settings, result, progress);
      if (settings.map !== undefined) await writeMap(settings.map, inputs, file.header.metadata, settings, progress);
      // One prefix: the plain names that api gives. Several: each under its own.
      const name = prefixes.length === 1 ? "" : prefix;
      outputs.push({ name: `${name}out`, ...result.out }, { name: `${name}lse`, ...result.lse });
      reports.push(toReport(engine, inputs, settings, result, verdict));
    }
    if (settings.output !== undefined) await writeSafetensors(settings.output, outputs);
    progress.clear();
    const ok = reports.every((report) => report.ok);
    if (settings.json) io.out(toJson(reports.length === 1 ? reports[0] : { ok, results: reports }));
    else io.out(describe(path, reports, settings));
    return ok ? exit.good : exit.no;
  } finally {
    progress.clear();
    engine?.dispose();
    await file.close();
  }
}

async function open({ backend, device, library, threads }: Settings): Promise<Engine> {
  if (library === undefined) {
    // Checked by the engine, with the list of what there is.
    return openEngine({ backend: backend as BackendChoice | undefined, device, threads });
  }
  const path = resolve(library);
  if (!existsSync(path)) throw new TesseraError("invalid-file", `--library ${library}: no such file`);
  if (!statSync(path).isFile()) throw new TesseraError("invalid-file", `--library ${library}: is not a regular file`);
  try {
    return await openEngine({ library: path, device, threads });
  } catch (error) {
    // What the user named is there and is no back end: a bad file, not a missing device.
    const bad = error instanceof TesseraError && error.code === "backend-missing";
    throw bad ? new TesseraError("invalid-file", error.message, { cause: error }) : error;
  }
}
