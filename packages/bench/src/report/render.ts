/** The report: one page that needs nothing but itself. */
import { readFileSync } from "node:fs";
import type { ResultFile } from "../result.js";
import { escaped } from "./html.js";
import { modelOf, type NamedResult, type ReportModel } from "./model.js";
import { style } from "./style.js";
import { tables } from "./tables.js";

let bundle: string | undefined;

/** The page's script. Bundled beside this file; in the tests, which run the sources, the build's. */
function script(): string {
  if (bundle !== undefined) return bundle;
  for (const place of ["./page.js", "../../dist/page.js"]) {
    try {
      bundle = readFileSync(new URL(place, import.meta.url), "utf8");
      // Whatever a string in it says, it must not end the element.
      bundle = bundle.replaceAll("</script", "<\\/script");
      return bundle;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
  }
  throw new Error("the page's script is missing: build the package");
}

/** The page is a copy of the chart library, too. */
function licences(): string {
  const place = import.meta.url.endsWith(".ts") ? "../../THIRD-PARTY.txt" : "../THIRD-PARTY.txt";
  return readFileSync(new URL(place, import.meta.url), "utf8");
}

interface Section {
  readonly id: string;
  readonly title: string;
  readonly text: string;
  readonly charts: boolean;
  readonly table: string;
}

function sections(model: ReportModel): Section[] {
  const all: Section[] = [
    {
      id: "prefill",
      title: "Prefill",
      text: "Operations are 4·B·H·D for each visible pair of query and key; causal counts half of all pairs. Where a matrix product was measured, its rate is the ceiling.",
      charts: true,
      table: tables.prefill(model),
    },
    {
      id: "decode",
      title: "Decode",
      text: "One new token. GB/s are the bytes of keys and values over the time; the ceiling is what the device reads (else copies) per second.",
      charts: true,
      table: tables.decode(model),
    },
    {
      id: "roofline",
      title: "Roofline",
      text: "Rate over arithmetic intensity: operations per byte of inputs and outputs. Lines are the measured ceilings.",
      charts: true,
      table: "",
    },
    {
      id: "ladder",
      title: "The ladder",
      text: "B 4, 32 heads, D 128, causal, f16, kernel by kernel, beside the published figures of the article that the steps come from. Those are of a B200: the shape of the climb is comparable, the height is not.",
      charts: true,
      table: tables.ladder(model),
    },
    {
      id: "features",
      title: "What options cost",
      text: "Time beside plain causal attention of the same sizes, on the same device in the same run.",
      charts: true,
      table: tables.features(model),
    },
    {
      id: "profile",
      title: "Where the time goes",
      text: "By Nsight Compute, on the largest case of each kernel. What warps wait for is a share of the time between two instructions of a warp; occupancy beside bandwidth and tensor cores, as alone it says little.",
      charts: false,
      table: tables.profile(model),
    },
    {
      id: "overhead",
      title: "Overhead",
      text: "Host time until a call returns, in bursts of 100.",
      charts: false,
      table: tables.overhead(model),
    },
    {
      id: "memory",
      title: "Memory",
      text: "Workspace of a call, beside the matrix of scores that unfused attention writes and reads.",
      charts: false,
      table: tables.memory(model),
    },
  ];
  const roofline = model.rows.some(({ intensity, tflops }) => intensity !== undefined && tflops !== undefined);
  return all.filter(({ id, table }) => (id === "roofline" ? roofline : table !== ""));
}

function sectionOf({ id, title, text, charts, table }: Section): string {
  const figures = charts ? `<div class="charts" data-charts="${id}"></div>` : "";
  // Where there is a chart, its numbers are one key press away.
  const numbers =
    table === "" || !charts ? table : `<details><summary>Numbers: ${escaped(title)}</summary>${table}</details>`;
  return `<section aria-labelledby="${id}"><h2 id="${id}">${escaped(title)}</h2><p class="faint">${escaped(text)}</p>
${figures}${numbers}</section>`;
}

function facts(entries: readonly (readonly [string, string | undefined])[]): string {
  const shown = entries.filter((entry): entry is [string, string] => entry[1] !== undefined && entry[1] !== "");
  return `<dl>${shown.map(([name, text]) => `<dt>${escaped(name)}</dt><dd>${escaped(text)}</dd>`).join("")}</dl>`;
}

const gibi = (bytes: number) => `${(bytes / 2 ** 30).toFixed(1)} GiB`;

function environmentOf({ name, result }: NamedResult): string {
  const { host, tool, created, seconds, state, note, devices } = result;
  const words = (object: { readonly [name: string]: string } | undefined) =>
    object &&
    Object.entries(object)
      .map(([key, value]) => `${key} ${value}`)
      .join(", ");
  const entries: [string, string | undefined][] = [
    ["file", name],
    ["made", `${created.slice(0, 16).replace("T", " ")} UTC, ${Math.round(seconds)} s, ${state}`],
    ["note", note],
    ["host", `${host.cpu}, ${host.cores} cores, ${gibi(host.memoryBytes)}, ${host.os}, ${host.kernel}, ${host.arch}`],
    ["Tessera", `${tool.version}${tool.commit ? `, commit ${tool.commit}` : ""}, Node ${tool.node}`],
  ];
  for (const { key, name: device, arch, memoryBytes, rotateBytes, ceilings, vendor, vendorAfter, error } of devices) {
    entries.push([key, `${device}, ${arch}, ${gibi(memoryBytes)}; inputs cycle through ${gibi(rotateBytes)}`]);
    entries.push([`${key}, before`, words(vendor)], [`${key}, after`, words(vendorAfter)], [`${key} broke`, error]);
    for (const [ceiling, value] of Object.entries(ceilings)) entries.push([`${key}, ${ceiling}`, value?.method]);
  }
  return facts(entries);
}

function noticesOf(files: readonly NamedResult[], model: ReportModel): string {
  const notices: string[] = [];
  for (const { name, result } of files)
    if (result.state !== "complete") notices.push(`${name} is part of a run: ${stateText(result)}.`);
  const wrong = model.rows.filter(({ check }) => check === "wrong");
  if (wrong.length > 0)
    notices.push(
      `${wrong.length} outputs were wrong, first ${wrong[0]!.suite}: ${wrong[0]!.case}. Their times mean nothing.`,
    );
  return notices.map((text) => `<p class="notice" role="note">${escaped(text)}</p>`).join("\n");
}

function stateText({ state }: ResultFile): string {
  if (state === "interrupted") return "it was interrupted";
  return state === "device-error" ? "a device broke" : "its time was up";
}

function skippedOf(files: readonly NamedResult[]): string {
  const items = files.flatMap(({ name, result }) =>
    result.skipped.map(
      ({ device, suite, case: what, reason }) =>
        `<li>${escaped(`${name}, ${device}, ${suite}: ${what}: ${reason}`)}</li>`,
    ),
  );
  if (items.length === 0) return "";
  return `<details><summary>Not measured: ${items.length} cases</summary><ul>${items.join("\n")}</ul></details>`;
}

/** One self-contained HTML page of results. The first device of the first file is what others are compared with. */
export function renderReport(files: readonly NamedResult[]): string {
  const model = modelOf(files);
  const shown = sections(model);
  const links = [...shown, { id: "compare", title: "Side by side" }, { id: "method", title: "Method and machines" }]
    .map(({ id, title }) => `<a href="#${id}">${escaped(title)}</a>`)
    .join(" ");
  // "<" is the one character that could end the element.
  const data = JSON.stringify(model).replaceAll("<", "\\u003c");
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>Tessera: attention on ${escaped(model.devices.map(({ label }) => label).join(", "))}</title>
<link rel="icon" href="data:,">
<style>${style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the results</a>
<header>
<h1>How fast is attention?</h1>
<p class="faint">Measured by <code>tessera bench</code> on ${model.devices.length === 1 ? "one device" : `${model.devices.length} devices`}. Medians; every
timed kernel's output was checked against a float64 oracle. Charts: point at a mark for its numbers.</p>
${noticesOf(files, model)}
<nav class="bar" aria-label="Sections">${links}</nav>
</header>
<div class="controls bar" id="controls"></div>
<main id="main">
${tables.ceilings(model)}
${shown.map(sectionOf).join("\n")}
<section aria-labelledby="compare"><h2 id="compare">Side by side</h2>
<p class="faint">Ratios are of speed, to the first device: 2 × is twice as fast.</p>
${tables.compare(model)}</section>
<section aria-labelledby="method"><h2 id="method">Method and machines</h2>
<p>Inputs are standard normal. Calls cycle through memory larger than the last-level cache. On a device with queues a sample is the time between
two of the device's own events around a batch of calls, recorded as a graph where there are graphs; elsewhere the host's time of awaited calls.
The median of all samples counts; the spread is the interquartile range over the median. A few rows of the output of each timed kernel are held
to a float64 oracle.</p>
${files.map(environmentOf).join("\n<hr>\n")}
${skippedOf(files)}
</section>
</main>
<noscript><p class="notice">Charts need scripts; the numbers are all in the tables.</p></noscript>
<script type="application/json" id="data">${data}</script>
<script type="text/plain" id="licences">${escaped(licences())}</script>
<script>${script()}</script>
</body>
</html>
`;
}
