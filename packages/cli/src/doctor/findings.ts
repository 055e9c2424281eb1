import type { ProbeReport } from "@tessera/core";
import { causeOf, fixesOf, hang } from "../ui/cause.js";
import type { Chosen } from "../ui/chosen.js";
import { bytes, table } from "../ui/table.js";
import type { Variable } from "./environment.js";
import type { PackageFinding } from "./packages.js";
import type { Shadow } from "./shadows.js";
import type { System } from "./system.js";

/** tessera.node, which loads the native back ends. */
export interface AddonFinding {
  readonly path: string;
  readonly state: string;
  readonly fix: string;
}

export interface Findings {
  readonly system: System;
  readonly packages: readonly PackageFinding[];
  readonly addon: AddonFinding;
  readonly backends: readonly ProbeReport[];
  readonly environment: readonly Variable[];
  /** Libraries that LD_LIBRARY_PATH puts before the system's. */
  readonly shadows?: readonly Shadow[];
  readonly chosen: Chosen | null;
  /** Why the device that is usable by its probe doesn't open. */
  readonly failure?: string | undefined;
}

/** As `--json` gives it: each back end also with its cause, its note and its fixes, each device with its fixes, in the words of the text. */
export function jsonOf(findings: Findings): object {
  const backends = findings.backends.map((report) => ({
    ...report,
    cause: report.state === "usable" ? "" : causeOf(report),
    note: noteOf(report, findings),
    fixes: fixesOf(report),
    devices: report.devices.map((device) => ({ ...device, fixes: fixesOf(device) })),
  }));
  return { ...findings, backends };
}

export function describeDoctor(findings: Findings): string {
  const { system, environment, addon } = findings;
  const sections = [
    section("System", [
      ["os", `${system.os}, ${system.architecture}`],
      ["libc", system.libc],
      ["node", system.node],
      ["cpu", `${system.cpu}, ${system.cores} ${system.cores === 1 ? "core" : "cores"}, ${bytes(system.memoryBytes)}`],
      ["gpus", system.gpuDrivers.join(", ") || "no driver of NVIDIA's or AMD's is loaded"],
      ["features", system.cpuFeatures.join(" ") || "none that kernels are built for"],
    ]),
    section(
      "Packages",
      findings.packages.map(({ name, version, folder, problem }) => [
        name,
        version ?? "not installed",
        `${folder ?? ""}${problem === undefined ? "" : `  (${problem})`}`,
      ]),
    ),
    section("Addon", [[addon.path, addon.state], ...fixesOf(addon).map((step, n) => [`fix ${n + 1}`, step])]),
    `Back ends\n${findings.backends.map((report) => describeBackend(report, findings)).join("")}`,
    section(
      "Environment",
      environment.length === 0
        ? [["nothing set that matters"]]
        : environment.map((variable) => [variable.name, variable.value, remark(variable)]),
    ),
    ...(findings.shadows ?? []).map(({ path, meaning }) => `  ${path}\n    ${meaning}\n`),
  ];
  return `${sections.join("\n")}\n${verdict(findings)}\n`;
}

function remark({ meaning, problem }: Variable): string {
  if (problem === undefined) return meaning === "" ? "" : `(${meaning})`;
  return `not allowed: ${hang(problem, "    ")}`;
}

function section(title: string, rows: readonly (readonly string[])[]): string {
  return `${title}\n${table(rows, "  ")}`;
}

/** What should be known of a back end though it is usable. One out of a package would have been refused. */
function noteOf({ version }: ProbeReport, { packages }: Findings): string {
  const core = packages.find(({ name }) => name === "@tessera/core")?.version;
  if (!version || !core || version === core) return "";
  return `is version ${version}, @tessera/core is ${core}: only what was published together is tested together`;
}

function describeBackend(report: ProbeReport, findings: Findings): string {
  const { backend, state, version, library, devices, attempts } = report;
  let text = `  ${backend}${version ? ` ${version}` : ""}: ${state}\n`;
  if (library !== undefined) text += `    library  ${library}\n`;
  const note = noteOf(report, findings);
  if (note !== "") text += `    note     ${note}\n`;
  if (state !== "usable") {
    text += `    cause    ${hang(causeOf(report), " ".repeat(13))}\n`;
    if (library === undefined) for (const { from, at } of attempts) text += `    looked   ${from}: ${at}\n`;
    fixesOf(report).forEach((step, n) => {
      text += `    fix ${n + 1}    ${step}\n`;
    });
  }
  for (const device of devices) {
    const memory = device.memoryBytes > 0 ? `, ${bytes(device.memoryBytes)}` : "";
    text += `    device ${device.index} ${device.name} (${device.arch}${memory}): ${device.state}\n`;
    if (device.reason !== "") text += `      cause  ${device.reason}\n`;
    fixesOf(device).forEach((step, n) => {
      text += `      fix ${n + 1}  ${step}\n`;
    });
  }
  return text;
}

function verdict(findings: Findings): string {
  return [judgement(findings), ...unusedGpus(findings)].join("\n  ");
}

/** Hardware that a driver is loaded for, and no attention runs on: most often what somebody came to ask about. */
function unusedGpus({ system, backends, chosen }: Findings): string[] {
  return [
    { vendor: "NVIDIA", backend: "cuda" },
    { vendor: "AMD", backend: "hip" },
  ].flatMap(({ vendor, backend }) => {
    const driver = system.gpuDrivers.find((name) => name.startsWith(vendor));
    const report = backends.find((one) => one.backend === backend);
    if (driver === undefined || report === undefined || chosen?.backend === backend) return [];
    if (report.devices.some(({ state }) => state === "usable")) return [];
    const [first] = [report, ...report.devices].flatMap(fixesOf);
    return [
      `But the driver ${driver} is loaded, and ${backend} can't be used (${report.state})${first ? `: ${first}` : ""}`,
    ];
  });
}

function judgement({ chosen, backends, environment, failure }: Findings): string {
  const problems = environment.flatMap(({ problem }) => problem ?? []);
  if (problems.length > 0) return `Verdict: nothing can run attention as asked: ${problems.join("\n  and ")}`;
  if (failure !== undefined) return `Verdict: nothing can run attention as asked: ${hang(failure, "  ")}`;
  if (chosen === null) {
    const asked = process.env.TESSERA_BACKEND;
    const report = backends.find(({ backend }) => backend === asked);
    const [first] = report ? fixesOf(report) : [];
    const what = asked ? ` (TESSERA_BACKEND=${asked})` : "";
    return `Verdict: nothing can run attention as asked${what}${first ? `: ${first}` : "; see the fixes above."}`;
  }
  const device = backends
    .find(({ backend }) => backend === chosen.backend)
    ?.devices.find((d) => d.index === chosen.device);
  const on = `${chosen.backend}${device ? `, ${device.name}` : ""}`;
  if (chosen.backend === "reference") {
    const better = backends.find(({ backend, state }) => backend !== "reference" && state === "usable");
    if (better !== undefined)
      return `Verdict: attention works, but slowly: TESSERA_BACKEND asks for the TypeScript reference. Without it ${better.backend} is used.`;
    return `Verdict: attention works, but slowly: only the TypeScript reference is usable. The cpu fixes above come first.`;
  }
  return `Verdict: good. Attention runs natively on ${on}.`;
}
