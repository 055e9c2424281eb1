import { probe } from "@tessera/core";
import type { Command } from "commander";
import { addon } from "../doctor/addon.js";
import { environment } from "../doctor/environment.js";
import { describeDoctor, type Findings } from "../doctor/findings.js";
import { packages } from "../doctor/packages.js";
import { describeSystem } from "../doctor/system.js";
import { chosenDevice } from "../ui/chosen.js";
import { exit, toJson } from "../ui/exit.js";
import type { Io } from "../ui/io.js";

const help = `
Examples
  $ tessera doctor
  $ tessera doctor --json > report.json     something to attach to a bug report

Exit codes: as of tessera devices.`;

export function addDoctor(program: Command, io: Io): void {
  program
    .command("doctor")
    .summary("why a device isn't there, and what would help")
    .description("Look at everything that decides what attention can run on, and say what would help.")
    .option("--json", "print one JSON object")
    .addHelpText("after", help)
    .action(async ({ json }: { json?: boolean }) => {
      const reports = await probe({ fresh: true });
      const findings: Findings = {
        system: describeSystem(),
        packages: packages(reports),
        addon: addon(),
        backends: reports,
        environment: environment(),
        chosen: chosenDevice(reports) ?? null,
      };
      io.out(json ? toJson(findings) : describeDoctor(findings));
      io.setExitCode(findings.chosen === null ? exit.device : exit.good);
    });
}
