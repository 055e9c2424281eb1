// A process of its own: a library under test may crash, hang or print, and the verdict must outlive that. Started by hand, as by a
// tool that watches it from within (tests/reliability/sanitize.mjs), it tells in lines of JSON what it would have told its parent.
import { runConformance, selectCases } from "@tessera/conformance";
import { type Backend, loadBackend, TesseraError } from "@tessera/core";
import type { ConformMessage, ConformRequest } from "./messages.js";

function tell(message: ConformMessage): Promise<void> {
  if (process.send === undefined) {
    console.log(JSON.stringify(message));
    return Promise.resolve();
  }
  return new Promise((resolve) => process.send?.(message, undefined, undefined, () => resolve()));
}

async function checkRequest(backend: Backend, device: number, request: ConformRequest): Promise<void> {
  const { filter, kernels = [], quick, long } = request;
  if (filter !== undefined && selectCases({ cases: new RegExp(filter), quick, long }).length === 0) {
    const some = selectCases({ quick, long }).slice(0, 8);
    const names = some.map(({ name }) => name).join(", ");
    throw new TesseraError("invalid-argument", `--filter ${filter} matches no case; there are ${names}, ...`);
  }
  const context = await backend.open({ device, threads: request.threads });
  const catalogue = context.kernels();
  context.dispose();
  for (const name of kernels) {
    const kernel = catalogue.find((row) => row.name === name);
    if (kernel === undefined) {
      const names = catalogue.map((row) => row.name).join(", ");
      throw new TesseraError("invalid-argument", `--kernel is ${name}; allowed: ${names}`);
    }
    if (!kernel.usable) throw new TesseraError("device-unavailable", `kernel ${name} can't run here: ${kernel.reason}`);
  }
}

async function main(request: ConformRequest): Promise<void> {
  const backend = await loadBackend({ library: request.library });
  await tell({ kind: "loaded", name: backend.name, version: backend.version });
  const { devices, reason, fix } = await backend.probe();
  const wanted = devices.filter(({ index }) => request.device === undefined || index === request.device);
  const device = wanted.find(({ state }) => state === "usable");
  if (device === undefined) {
    const why = wanted[0] ?? { reason: reason || `there is no device ${request.device ?? 0}`, fix };
    await tell({ kind: "no-device", reason: why.reason || why.fix || "it says no more", fix: why.fix });
    return;
  }
  await checkRequest(backend, device.index, request);
  let last = 0;
  const report = await runConformance({
    backend,
    device: device.index,
    ...(request.threads !== undefined && { threads: request.threads }),
    cases: request.filter === undefined ? undefined : new RegExp(request.filter),
    kernels: request.kernels,
    layouts: request.layouts,
    quick: request.quick,
    long: request.long,
    part: request.part,
    until: request.until,
    onProgress: (progress) => {
      // Each case is told of as it begins, so that a crash can be laid at its door; the text that changes within is not.
      if (progress.done === last && progress.done > 0) return;
      last = progress.done;
      void tell({ kind: "progress", progress });
    },
  });
  await tell({ kind: "report", report });
}

process.once("disconnect", () => process.exit());
try {
  await main(JSON.parse(process.argv[2] ?? "{}") as ConformRequest);
} catch (error) {
  if (!(error instanceof TesseraError)) throw error;
  await tell({ kind: "error", code: error.code, message: error.message });
}
process.disconnect?.();
