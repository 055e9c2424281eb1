import type { Measurement, ResultFile } from "@tessera/bench";
import type { EngineOptions } from "@tessera/core";
import { type Command, Option } from "commander";
import { append, wholeFrom } from "../attend/settings.js";
import { describeRun } from "../bench/describe.js";
import { backendOption, devicesOf } from "../bench/devices.js";
import { regexp, suitesOf } from "../bench/suites.js";
import { checkTarget, writeAtomically } from "../ui/atomic.js";
import { exit } from "../ui/exit.js";
import { onInterrupt } from "../ui/interrupt.js";
import type { Io } from "../ui/io.js";
import { Progress } from "../ui/progress.js";

interface Flags {
  readonly suite: readonly string[];
  readonly backend: readonly string[];
  readonly library?: string;
  readonly threads?: number;
  readonly repeats: number;
  readonly seconds?: number;
  readonly filter?: RegExp;
  readonly rotate?: number;
  readonly note?: string;
  readonly json?: string | true;
  readonly list?: boolean;
  readonly profile?: boolean;
}

const help = `
Ceilings of the device (copy, read) are measured in the same run, and the output of every timed kernel is checked once
against the float64 oracle. Ctrl-C ends a run early; what was measured until then is a valid result.

Examples
  $ tessera bench                                            the suite quick on the best device
  $ tessera bench --suite prefill --suite decode --json h200.json
  $ tessera bench --backend cuda:0 --backend cpu --json both.json
  $ tessera report h200.json mi300.json -o report.html

Exit codes: 0 good, 1 an output was wrong, 2 wrong usage, 3 no usable device, or it broke on the way (the result file
has what was measured until then), 130 interrupted (likewise).`;

export function addBench(program: Command, io: Io): void {
  program
    .command("bench")
    .summary("how fast is attention here, and against what the device could do?")
    .description("Measure attention on one device or several.")
    .addOption(
      new Option("--suite <name>", "what to measure; repeat it for several (default: quick). --list tells them")
        .argParser<readonly string[]>(append)
        .default([], "quick"),
    )
    .addOption(backendOption())
    .option("--library <path>", "load this back end's shared library")
    .option("--threads <n>", "CPU threads", wholeFrom(1))
    .option("--repeats <n>", "samples of each case (below 20 no figure is to be believed)", wholeFrom(1), 30)
    .option("--seconds <n>", "begin no case that would end later (default: 55 for quick, else none)", wholeFrom(1))
    .option("--filter <regexp>", "only cases whose 'suite: name' matches", regexp)
    .option("--rotate <MiB>", "inputs cycle through this much (default: twice the last cache)", wholeFrom(1))
    .option("--note <text>", "kept in the result file: what others should know of this machine")
    .option("--json [file]", "write the result file; with no name, to stdout")
    .option("--profile", "also profile each kernel with Nsight Compute, where ncu is installed")
    .option("--list", "list the suites")
    .addHelpText("after", help)
    .action(async (flags: Flags) => {
      const bench = await import("@tessera/bench");
      const suites = suitesOf(flags.suite, bench.suiteNames);
      if (flags.list) {
        for (const name of bench.suiteNames) io.out(`${name.padEnd(10)}  ${bench.suiteTexts[name]}\n`);
        return;
      }
      const devices: EngineOptions[] = devicesOf(flags.backend, flags.library, flags.threads);
      const seconds = flags.seconds ?? (suites.every((suite) => suite === "quick") ? 55 : undefined);
      if (typeof flags.json === "string") await checkTarget("--json", flags.json);
      const controller = new AbortController();
      const asJson = flags.json === true;
      using progress = new Progress();
      using _interrupt = onInterrupt(() => controller.abort(new Error("interrupted")));
      const result = await bench.runBench({
        suites,
        devices,
        repeats: flags.repeats,
        seconds,
        filter: flags.filter,
        note: flags.note,
        signal: controller.signal,
        ...(flags.rotate !== undefined && { rotateBytes: flags.rotate * 2 ** 20 }),
        onProgress: ({ done, total, device, suite, case: name, secondsLeft }) =>
          progress.show(`${done}/${total}, ${left(secondsLeft)} left: ${device} ${suite}: ${name}`),
      });
      const profiled =
        flags.profile && result.state !== "device-error"
          ? await bench.withProfiles(result, {
              signal: controller.signal,
              ...(flags.library !== undefined && { library: flags.library }),
              onProgress: (what) => progress.show(`profiling ${what}`),
            })
          : result;
      progress.clear();
      const text = `${JSON.stringify(bench.validateResult(profiled, "this run"), null, 1)}\n`;
      if (typeof flags.json === "string") await writeAtomically(flags.json, [Buffer.from(text)]);
      io.out(asJson ? text : describeRun(profiled, typeof flags.json === "string" ? flags.json : undefined));
      io.setExitCode(controller.signal.aborted ? exit.interrupted : codeOf(result));
      if (result.state === "device-error")
        for (const { key, error } of result.devices) if (error) io.err(`tessera: ${key} broke: ${error}\n`);
    });
}

function codeOf({ state, measurements }: ResultFile) {
  if (state === "interrupted") return exit.interrupted;
  if (state === "device-error") return exit.device;
  return measurements.some(({ check }: Measurement) => check?.ok === false) ? exit.no : exit.good;
}

function left(seconds: number): string {
  return seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.round(seconds / 60)} min`;
}
