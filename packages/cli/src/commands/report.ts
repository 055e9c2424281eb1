import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import { TesseraError } from "@tessera/core";
import type { Command } from "commander";
import { checkTarget, writeAtomically } from "../ui/atomic.js";
import { toJson } from "../ui/exit.js";
import type { Io } from "../ui/io.js";

interface Flags {
  readonly output: string;
  readonly csv?: string;
  readonly json?: boolean;
}

const help = `
The page needs nothing but itself: no network, one file. Others are compared with the first device of the first file.

Examples
  $ tessera report h200.json
  $ tessera report h200.json mi300.json cpu.json -o report.html --csv report.csv

Exit codes: 0 good, 2 wrong usage, or a file that is no result, of another version or damaged.`;

export function addReport(program: Command, io: Io): void {
  program
    .command("report")
    .summary("results of bench as one page to look at")
    .description("Make one self-contained HTML page of result files of `tessera bench`.")
    .argument("<file...>", "result files")
    .option("-o, --output <file.html>", "the page", "report.html")
    .option("--csv <file.csv>", "the numbers, too")
    .option("--json", "print one JSON object")
    .addHelpText("after", help)
    .action(async (paths: readonly string[], flags: Flags) => {
      const { BadResult, csvOf, modelOf, parseResult, renderReport } = await import("@tessera/bench");
      await checkTarget("--output", flags.output);
      if (flags.csv !== undefined) await checkTarget("--csv", flags.csv);
      const files = [];
      for (const path of paths) {
        try {
          files.push({ name: basename(path), result: parseResult(await readFile(path, "utf8"), path) });
        } catch (error) {
          if (error instanceof BadResult) throw new TesseraError("invalid-file", error.message, { cause: error });
          const { code, message } = error as NodeJS.ErrnoException;
          if (code === undefined) throw error;
          throw new TesseraError("invalid-file", `${path}: ${message}`, { cause: error });
        }
      }
      const written = [flags.output];
      await writeAtomically(flags.output, [Buffer.from(renderReport(files))]);
      if (flags.csv !== undefined) {
        await writeAtomically(flags.csv, [Buffer.from(csvOf(modelOf(files)))]);
        written.push(flags.csv);
      }
      const measurements = files.reduce((sum, { result }) => sum + result.measurements.length, 0);
      if (flags.json) io.out(toJson({ files: paths, measurements, written }));
      else io.out(`${paths.length} files, ${measurements} measurements\nwritten  ${written.join("\n         ")}\n`);
    });
}
