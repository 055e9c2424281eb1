import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { type LayoutName, layouts } from "@tessera/conformance";
import { TesseraError } from "@tessera/core";
import { type Command, InvalidArgumentError, Option } from "commander";
import { append, wholeFrom } from "../attend/settings.js";
import { conform, type Finding, type Outcome } from "../conform/run.js";
import { hang } from "../ui/cause.js";
import { exit, toJson } from "../ui/exit.js";
import type { Io } from "../ui/io.js";
import { Progress } from "../ui/progress.js";
import { table } from "../ui/table.js";

interface Flags {
  readonly filter?: string;
  readonly kernel: readonly string[];
  readonly layout: readonly LayoutName[];
  readonly quick?: boolean;
  readonly long?: boolean;
  readonly device?: number;
  readonly threads?: number;
  readonly json?: boolean;
}

const shown = 20;

const help = `
Every case runs on every kernel variant that the device can run, with contiguous, transposed, sliced, interleaved and
expanded tensors, in a process of its own: a crash is a finding, and so is anything the library prints.

Examples
  $ tessera conform ./libtessera-cpu.so
  $ tessera conform ./libmine.so --filter '^causal' --kernel mine-f16 --layout contiguous

Exit codes: 0 conformant, 1 not, 2 not a back end, unreadable or of another ABI, 3 no usable device.`;

export function addConform(program: Command, io: Io): void {
  program
    .command("conform")
    .summary("does a back end's library keep the contract?")
    .description("Hold a back end's shared library to the contract: the whole case table against the float64 truth.")
    .argument("<library>", "shared library that exports tsr_backend_entry")
    .option("--filter <regexp>", "cases whose name matches", regexp)
    .addOption(
      new Option("--kernel <name>", "this variant only; repeat it for several")
        .argParser<readonly string[]>(append)
        .default([], "all"),
    )
    .addOption(
      new Option("--layout <name>", `this layout only; repeat it for several: ${layouts.join(", ")}`)
        .argParser((value, previous: readonly string[]) => [...previous, layoutOf(value)])
        .default([], "all"),
    )
    .option("--quick", "the quick cases only")
    .option("--long", "the cases that take minutes or much memory, too")
    .option("--device <n>", "device number (default: the first usable)", wholeFrom(0))
    .option("--threads <n>", "CPU threads", wholeFrom(1))
    .option("--json", "print one JSON object")
    .addHelpText("after", help)
    .action(async (library: string, flags: Flags) => {
      const path = resolve(library);
      if (!existsSync(path)) throw new TesseraError("invalid-file", `${library}: no such file`);
      if (!statSync(path).isFile()) throw new TesseraError("invalid-file", `${library}: is not a regular file`);
      const outcome = await conform(
        {
          library: path,
          device: flags.device,
          threads: flags.threads,
          filter: flags.filter,
          kernels: flags.kernel.length > 0 ? flags.kernel : undefined,
          layouts: flags.layout.length > 0 ? flags.layout : undefined,
          quick: flags.quick,
          long: flags.long,
        },
        new Progress(),
      );
      io.out(flags.json ? toJson({ ...outcome.report, ...outcome, report: undefined }) : describe(library, outcome));
      io.setExitCode(outcome.conformant ? exit.good : exit.no);
    });
}

function regexp(text: string): string {
  try {
    new RegExp(text);
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message);
  }
  return text;
}

function layoutOf(name: string): LayoutName {
  if (!(layouts as readonly string[]).includes(name)) throw new InvalidArgumentError(`Allowed: ${layouts.join(", ")}.`);
  return name as LayoutName;
}

/** Failures first: they are what one came for. A case that fails in many ways is told of once. */
function describe(library: string, { report, failures, conformant, name, version }: Outcome): string {
  const groups = new Map<string, Finding[]>();
  for (const failure of failures) {
    const key = "case" in failure ? `${failure.case} ${failure.check}` : failure.id;
    groups.set(key, [...(groups.get(key) ?? []), failure]);
  }
  let text = "";
  for (const [first, ...others] of [...groups.values()].slice(0, shown)) {
    text += `FAIL ${first!.id} [${first!.check}]\n     ${hang(first!.message, "     ")}\n`;
    if (others.length > 0) text += `     and ${others.length} more layouts or kernels of this case\n`;
  }
  if (groups.size > shown) text += `... and ${groups.size - shown} more cases (--json lists them)\n`;
  if (text !== "") text += "\n";
  if (report !== undefined) {
    const rows = report.kernels.map((k) => [k.name, `${k.passed}`, `${k.failed}`, `${k.unsupported}`]);
    text += `${table([["kernel", "passed", "failed", "declined"], ...rows])}\n`;
    for (const [reason, times] of Object.entries(report.skipped)) text += `not run, ${times}: ${reason}\n`;
    text += `${report.cases} cases on ${report.device}: ${report.passed} checks passed, ${report.failed} failed, `;
    text += `${report.unsupported.length} declined; ${report.seconds.toFixed(1)} s\n`;
  }
  return `${text}${library} (${name} ${version}): ${conformant ? "conformant" : "NOT conformant"}\n`;
}
