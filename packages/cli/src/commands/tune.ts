import type { TunedCase, TuneProgress } from "@tessera/bench";
import type { TunedVariant } from "@tessera/core";
import { type Command, Option } from "commander";
import { append, wholeFrom } from "../attend/settings.js";
import { backendOption, devicesOf } from "../bench/devices.js";
import { regexp, suitesOf } from "../bench/suites.js";
import { exit, toJson } from "../ui/exit.js";
import { onInterrupt } from "../ui/interrupt.js";
import type { Io } from "../ui/io.js";
import { Progress } from "../ui/progress.js";
import { milliseconds, table } from "../ui/table.js";

interface Flags {
  readonly suite: readonly string[];
  readonly backend: readonly string[];
  readonly library?: string;
  readonly threads?: number;
  readonly filter?: RegExp;
  readonly clear?: boolean;
  readonly json?: boolean;
}

const help = `
For each case, every kernel of the catalogue and every number of splits that can do it is timed. The fastest is kept in
the user's cache directory (TESSERA_CACHE_DIR, else XDG_CACHE_HOME/tessera, else ~/.cache/tessera), for the device, its
driver and the class of shapes; engines use it from then on.

Examples
  $ tessera tune                                    the shapes of the suite quick, on the best device
  $ tessera tune --suite decode --backend cuda
  $ tessera tune --clear                            back to the engine's own choices

Exit codes: 0 good, 2 wrong usage, 3 no usable device, 130 interrupted (what was tuned until then is kept).`;

export function addTune(program: Command, io: Io): void {
  program
    .command("tune")
    .summary("find the fastest kernels for this device, and keep them")
    .description("Time every kernel on the shapes of benchmark suites, and keep the fastest for later.")
    .addOption(
      new Option("--suite <name>", "whose shapes; repeat it for several (default: quick)")
        .argParser<readonly string[]>(append)
        .default([], "quick"),
    )
    .addOption(backendOption())
    .option("--library <path>", "load this back end's shared library")
    .option("--threads <n>", "CPU threads", wholeFrom(1))
    .option("--filter <regexp>", "only cases whose 'suite: name' matches", regexp)
    .option("--clear", "forget what was tuned on the device")
    .option("--json", "print one JSON object")
    .addHelpText("after", help)
    .action(async (flags: Flags) => {
      const bench = await import("@tessera/bench");
      const controller = new AbortController();
      using progress = new Progress();
      using _interrupt = onInterrupt(() => controller.abort(new Error("interrupted")));
      const cases: TunedCase[] = [];
      const show = () => {
        progress.clear();
        if (flags.json) io.out(toJson({ cases }));
        else io.out(flags.clear ? "forgotten\n" : describe(cases));
      };
      const options = {
        suites: suitesOf(flags.suite, bench.suiteNames),
        devices: devicesOf(flags.backend, flags.library, flags.threads),
        filter: flags.filter,
        clear: flags.clear,
        signal: controller.signal,
        onTuned: (tuned: TunedCase) => void cases.push(tuned),
        onProgress: ({ done, total, device, case: name }: TuneProgress) =>
          progress.show(`${done}/${total}: ${device} ${name}`),
      };
      try {
        await bench.runTune(options);
      } catch (error) {
        if (cases.length > 0) show(); // they are kept, too
        throw error;
      }
      show();
      io.setExitCode(controller.signal.aborted ? exit.interrupted : exit.good);
    });
}

function variant({ kernel, numSplits }: TunedVariant): string {
  return numSplits > 0 ? `${kernel}, ${numSplits} splits` : kernel;
}

function describe(cases: readonly TunedCase[]): string {
  const rows = cases.map(({ device, suite, case: name, before, best }) => [
    device,
    `${suite}: ${name}`,
    before ? `${milliseconds(before.milliseconds)}  ${before.kernel}` : "",
    `${milliseconds(best.milliseconds)}  ${variant(best)}`,
    before ? `${(100 * (before.milliseconds / best.milliseconds - 1)).toFixed(0)} %` : "",
  ]);
  return table([["device", "case", "by default", "fastest", "default slower by"], ...rows]);
}
