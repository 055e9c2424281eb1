import { TesseraError } from "@tessera/core";
import { Command, CommanderError } from "commander";
import { addAttend } from "./commands/attend.js";
import { addBench } from "./commands/bench.js";
import { addConform } from "./commands/conform.js";
import { addDevices } from "./commands/devices.js";
import { addDoctor } from "./commands/doctor.js";
import { addReport } from "./commands/report.js";
import { addTune } from "./commands/tune.js";
import { type ExitCode, exit, exitCodeOf, toJson } from "./ui/exit.js";
import { version } from "./version.js";

const help = `
Examples
  $ tessera devices                                    what this machine can run attention on
  $ tessera attend qkv.safetensors --causal --check    compute it, and compare with the float64 oracle
  $ tessera bench                                      how fast it is here
  $ tessera report a.json b.json -o report.html        results of several machines as one page
  $ tessera doctor                                     why a device isn't there, and what would help

Exit codes: 0 good, 1 the answer is "no", 2 wrong usage or a bad file,
3 no usable device, or not enough memory.`;

/** Of `bench`, `--json FILE` asks for a file, and stdout is for people. */
function asksForJson(args: readonly string[]): boolean {
  const at = args.indexOf("--json");
  if (at < 0) return false;
  const next = args[at + 1];
  return args[0] !== "bench" || next === undefined || next.startsWith("-");
}

/**
 * Runs one command line. Everything that a user did or met ends in an exit code and a message; only a defect throws.
 * Under --json an error is the one object on stdout, and its text is on stderr too.
 */
export async function run(
  args: readonly string[],
  out: (text: string) => void,
  err: (text: string) => void,
): Promise<ExitCode> {
  let code: ExitCode = exit.good;
  const setExitCode = (value: ExitCode) => {
    code = value;
  };
  const io = { out, err, setExitCode };
  const json = asksForJson(args);

  const program = new Command("tessera")
    .description("Fused attention on any device: compute it, check it, look at it.")
    .version(version(), "-V, --version")
    .configureOutput({ writeOut: out, writeErr: err })
    .showHelpAfterError("(add --help for the options)")
    .exitOverride()
    .addHelpText("after", help);
  addDevices(program, io);
  addAttend(program, io);
  addBench(program, io);
  addReport(program, io);
  addTune(program, io);
  addConform(program, io);
  addDoctor(program, io);

  if (args.length === 0) {
    out(`${program.helpInformation()}${help}\n`);
    return exit.good;
  }
  try {
    await program.parseAsync(args, { from: "user" });
    return code;
  } catch (error) {
    if (error instanceof CommanderError) {
      if (error.exitCode === 0) return exit.good; // help or version, printed already
      if (json) out(toJson({ error: { code: "invalid-argument", message: error.message.replace(/^error: /, "") } }));
      return exit.usage;
    }
    if (!(error instanceof TesseraError)) throw error;
    if (json) out(toJson({ error: { code: error.code, message: error.message } }));
    err(`tessera: ${error.message}\n`);
    return exitCodeOf(error);
  }
}
