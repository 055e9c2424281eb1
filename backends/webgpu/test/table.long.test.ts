/** The conformance table on the adapter of this process. */
import { runConformance, selectCases, summarize } from "@tessera/conformance";
import { expect, it } from "vitest";
import { adapter, backendOfAdapter, full, part, slice } from "./adapter.js";

const onAdapter = adapter !== "" && adapter !== "chromium";

// Pipelines take seconds to compile on the CPU, lavapipe's most of all: a choice of types, and of each feature a case or more.
// CI, whose hour is short, has a few of each kernel's ways.
const some = part
  ? /^(dim\/33|heads\/14-2|length\/65x65|window\/3,3|mask\/hidden-nan|packed\/both|paged\/16|poison\/(k-causal|v-causal|v-mask|decode)|splits\/7|append\/f16|rope\/half|merge\/attention)$/
  : adapter === "swiftshader"
    ? /^(dim\/(33|64|256)$|heads\/(7-1|14-2)|length\/(0|1|65|129)x|window|align|offset|bias|mask|sinks?|softcap|alibi|number|decode|split|paged|append|cache|merge|packed|padded|poison|subnormal)/
    : /^(dim\/33$|heads\/14-2$|length\/(0|65)x65$|length\/65x|window\/|softcap\/)/;

/** They decline the sliced layout. */
const aligned = /^(decode-stream|prefill-matrix)/;

const [turn = 1, turns = 1] = slice.split("/").filter(Boolean).map(Number);
const sliced = new Set(
  selectCases({ badInput: false }).flatMap(({ name }, i) => (i % turns === turn - 1 ? [name] : [])),
);

it.runIf(onAdapter)("the conformance table", async () => {
  const report = await runConformance({
    backend: await backendOfAdapter(),
    ...(full && { cases: ({ name }: { name: string }) => sliced.has(name) }),
    ...(!full && {
      quick: true,
      cases: some,
      layouts: adapter === "swiftshader" && !part ? ["contiguous", "sliced"] : ["sliced"],
    }),
  });
  console.log(summarize(report));
  expect(report.failures).toEqual([]);
  expect(report.passed).toBeGreaterThan(report.unsupported.length);
  for (const { name, passed } of report.kernels)
    if (!aligned.test(name)) expect({ name, ran: passed > 0 }).toEqual({ name, ran: true });
});

it.runIf(onAdapter && !full)("kernels that want aligned rows, where rows are", async () => {
  const report = await runConformance({
    backend: await backendOfAdapter(),
    quick: true,
    kernels: aligned,
    layouts: ["contiguous"],
    cases: part
      ? /^(heads\/8-2|decode\/[14]$|paged\/(64|q8_0)|splits\/7|poison\/decode)/
      : /^(dim\/(64|256)$|heads\/|decode|paged|splits\/|poison\/|packed|padded|window\/)/,
  });
  console.log(summarize(report));
  expect(report.failures).toEqual([]);
  for (const { name, passed } of report.kernels) expect({ name, ran: passed > 0 }).toEqual({ name, ran: true });
});

it.runIf(onAdapter && slice === "")("the sizes that GPUs have room for", async () => {
  const report = await runConformance({
    backend: await backendOfAdapter({
      prefillTile: { ty: 16, tx: 8, depth: 8 },
      streamKeys: 8,
      streamWorkgroups: 1024,
    }),
    quick: true,
    kernels: ["prefill-portable", "decode-stream-portable"],
    layouts: ["contiguous"],
    cases: part
      ? /^(dim\/33|length\/65x65|window\/3,3|heads\/8-2|paged\/q8_0|splits\/7)$/
      : /^(dim|length|heads|window|bias|mask|sinks?|paged|packed|splits|decode|poison)\//,
  });
  console.log(summarize(report));
  expect(report.failures).toEqual([]);
  for (const { name, passed } of report.kernels) expect({ name, ran: passed > 0 }).toEqual({ name, ran: true });
});

it.runIf(onAdapter && slice === "")(
  "problems cut into chunks, grids of few workgroups and short submissions",
  async () => {
    const report = await runConformance({
      backend: await backendOfAdapter({ bindingBytes: 4096, gridWidth: 3, submissionWork: 50_000 }),
      quick: true,
      kernels: ["prefill-portable", "decode-portable", "decode-stream-portable"],
      layouts: ["contiguous"],
      cases: full
        ? /^(length|heads|window|bias|mask|sinks?|paged|append|merge)/
        : part
          ? /^(length\/(1|65)x65|heads\/8-2|window\/3,3|paged\/16)$/
          : /^(length\/(1|9|65|129)x|heads\/8-2|window\/|paged\/)/,
    });
    console.log(summarize(report));
    expect(report.failures).toEqual([]);
    expect(report.passed).toBeGreaterThan(part ? 8 : 20);
  },
);
