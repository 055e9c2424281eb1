import { type ProbeReport, probe } from "@tessera/core";
import type { Command } from "commander";
import { causeOf, fixesOf, hang } from "../ui/cause.js";
import { checkAsked, chosenDevice } from "../ui/chosen.js";
import { exit, toJson } from "../ui/exit.js";
import type { Io } from "../ui/io.js";
import { bytes, table } from "../ui/table.js";

const help = `
The device marked * is the one that attention runs on if nothing else is asked (TESSERA_BACKEND counts).

Examples
  $ tessera devices
  $ tessera devices --json

Exit codes: 0 a device is usable (the TypeScript reference is one, so any machine has one), 2 TESSERA_BACKEND names no
back end, 3 it names one that can't be used.`;

export function addDevices(program: Command, io: Io): void {
  program
    .command("devices")
    .summary("every back end and device: usable or not, why not, what would fix it")
    .description("List every back end and device: usable or not, why not, and what would fix it.")
    .option("--json", "print one JSON object")
    .addHelpText("after", help)
    .action(async ({ json }: { json?: boolean }) => {
      await checkAsked();
      const reports = await probe();
      const chosen = chosenDevice(reports);
      io.out(json ? toJson({ chosen: chosen ?? null, backends: reports }) : describe(reports, chosen));
      io.setExitCode(chosen === undefined ? exit.device : exit.good);
    });
}

export function describe(reports: readonly ProbeReport[], chosen: ReturnType<typeof chosenDevice>): string {
  const rows = [["", "BACKEND", "DEVICE", "NAME", "ARCH", "MEMORY", "STATE"]];
  const causes: string[] = [];
  const explain = (who: string, reason: string, fixes: readonly string[]) => {
    causes.push(`${who}: ${hang(reason, "  ")}\n`);
    for (const fix of fixes) causes.push(`  fix: ${fix}\n`);
  };
  for (const report of reports) {
    const { backend, state, devices } = report;
    if (state !== "usable") explain(backend, causeOf(report), fixesOf(report));
    if (devices.length === 0) rows.push(["", backend, "-", "-", "-", "-", state]);
    for (const device of devices) {
      const { index, name, arch, memoryBytes } = device;
      const marked = chosen?.backend === backend && chosen.device === index;
      const memory = memoryBytes > 0 ? bytes(memoryBytes) : "-";
      rows.push([marked ? "*" : "", backend, String(index), name, arch || "-", memory, device.state]);
      if (device.state !== "usable") explain(`${backend} ${index}`, device.reason || device.state, fixesOf(device));
    }
  }
  const why = causes.length > 0 ? `\n${causes.join("")}` : "";
  const verdict = chosen === undefined ? "\nNo device can be used as asked.\n" : "";
  return table(rows) + why + verdict;
}
