import { type ProbeReport, probe, TesseraError } from "@tessera/core";
import type { Command } from "commander";
import { addon } from "../doctor/addon.js";
import { environment } from "../doctor/environment.js";
import { describeDoctor, type Findings, jsonOf } from "../doctor/findings.js";
import { opens } from "../doctor/opens.js";
import { packages } from "../doctor/packages.js";
import { shadows } from "../doctor/shadows.js";
import { describeSystem } from "../doctor/system.js";
import { chosenDevice } from "../ui/chosen.js";
import { exit, exitCodeOf, toJson } from "../ui/exit.js";
import type { Io } from "../ui/io.js";

const help = `
Examples
  $ tessera doctor
  $ tessera doctor --json > report.json     something to attach to a bug report

Exit codes: 0 attention can run, 1 a TESSERA_ variable has a value that isn't allowed, 3 no device can be used as asked.`;

/** What `opens` says of a limit of time that isn't allowed is for the report, not the end of it. */
async function probeAnyway(): Promise<ProbeReport[]> {
  try {
    return await probe({ fresh: true });
  } catch (error) {
    if (!(error instanceof TesseraError) || !error.message.startsWith("TESSERA_PROBE_TIMEOUT_MS ")) throw error;
    return probe({ fresh: true, timeoutMs: 10_000 });
  }
}

export function addDoctor(program: Command, io: Io): void {
  program
    .command("doctor")
    .summary("why a device isn't there, and what would help")
    .description("Look at everything that decides what attention can run on, and say what would help.")
    .option("--json", "print one JSON object")
    .addHelpText("after", help)
    .action(async ({ json }: { json?: boolean }) => {
      const reports = await probeAnyway();
      const chosen = chosenDevice(reports) ?? null;
      const { refused, failure } = await opens();
      // A device that can't be chosen has its cause and its fixes among the back ends.
      const unopened = chosen === null || refused.size > 0 ? undefined : failure;
      const findings: Findings = {
        system: describeSystem(),
        packages: packages(reports),
        addon: addon(),
        backends: reports,
        environment: environment(process.env, refused),
        shadows: shadows(),
        chosen: refused.size > 0 || unopened !== undefined ? null : chosen,
        failure: unopened?.message,
      };
      io.out(json ? toJson(jsonOf(findings)) : describeDoctor(findings));
      if (refused.size > 0) io.setExitCode(exit.no);
      else if (unopened !== undefined) io.setExitCode(exitCodeOf(unopened));
      else io.setExitCode(chosen === null ? exit.device : exit.good);
    });
}
