/**
 * The runner: every case x kernel variant x layout through the Backend interface, against the float64 truth.
 * docs/conformance.md says what is checked and why.
 */
import type { Backend, BackendContext, KernelInfo, TesseraErrorCode } from "@tessera/core";
import { runAppend } from "./append-run.js";
import { runAttention } from "./attention-run.js";
import { type BadCase, badCases, runBad } from "./bad.js";
import type { Case, Level } from "./case.js";
import { cases as allCases } from "./cases/index.js";
import { layouts as allLayouts, type LayoutName } from "./layout.js";
import { runMerge } from "./merge-run.js";

export interface Failure {
  /** `case/layout/kernel`: what to give `cases`, `layouts` and `kernels` to see it again. */
  readonly id: string;
  readonly case: string;
  readonly layout: string;
  readonly kernel: string;
  readonly check: "result" | "support" | "repeat" | "independence" | "memory" | "error";
  /** Worst index, value, truth, error and bound, or what was thrown. */
  readonly message: string;
}

export interface Unsupported {
  readonly id: string;
  readonly reason: string;
}

export interface KernelCounts {
  readonly name: string;
  passed: number;
  failed: number;
  unsupported: number;
}

export interface ConformanceReport {
  readonly backend: string;
  readonly version: string;
  readonly device: string;
  readonly conformant: boolean;
  readonly cases: number;
  /** As many would have been run without a limit of time or of failures. */
  readonly selected: number;
  readonly passed: number;
  readonly failed: number;
  /** Cells that the back end declines, with its reason. */
  readonly unsupported: readonly Unsupported[];
  /** What wasn't run, and why, with how often. */
  readonly skipped: Readonly<Record<string, number>>;
  readonly kernels: readonly KernelCounts[];
  readonly failures: readonly Failure[];
  readonly seconds: number;
}

export interface Progress {
  readonly done: number;
  readonly total: number;
  readonly case: string;
  readonly failed: number;
}

export interface ConformanceOptions {
  readonly backend: Backend;
  readonly device?: number;
  readonly threads?: number;
  /** Variants to run: names, a pattern, or a test. All usable ones if absent. */
  readonly kernels?: readonly string[] | RegExp | ((kernel: KernelInfo) => boolean) | undefined;
  readonly cases?: readonly string[] | RegExp | ((c: Case) => boolean) | undefined;
  readonly layouts?: readonly LayoutName[] | undefined;
  /** Cases in place of the table's: those of a fuzzer, or of a back end of your own. */
  readonly table?: readonly Case[] | undefined;
  /** Only the quick cases, contiguous and sliced. */
  readonly quick?: boolean | undefined;
  /** The long cases too. */
  readonly long?: boolean | undefined;
  /** `[n, of]`: every `of`-th of them, from the n-th on, counted from 0. What is dear is spread over the parts so. */
  readonly part?: readonly [number, number] | undefined;
  /** No case is begun after this moment (as `Date.now()` tells it); the report is of those before. */
  readonly until?: number | undefined;
  /** Descriptors that contradict the contract. Default: all but back ends in TypeScript, which leave checking to the engine. */
  readonly badInput?: boolean | undefined;
  /** Stop after so many failures (default 200). */
  readonly maxFailures?: number | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** What a case's run reports to. */
export interface Recorder {
  pass(kernel: string): void;
  fail(layout: string, kernel: string, check: Failure["check"], message: string): void;
  unsupported(layout: string, kernel: string, reason: string): void;
  skip(reason: string): void;
}

export interface Cell {
  readonly context: BackendContext;
  readonly kernels: readonly KernelInfo[];
  readonly layouts: readonly LayoutName[];
  /** This back end may decline nothing when it is free to choose the kernel (CPU and reference). */
  readonly complete: boolean;
  /** NaN and infinity in a V row reach only the queries that see it: the CPU, the reference and WebGPU. */
  readonly exactNaN: boolean;
  readonly record: Recorder;
}

export function isTesseraError(error: unknown): error is Error & { code: TesseraErrorCode } {
  return (
    error instanceof Error && error.name === "TesseraError" && typeof (error as { code?: unknown }).code === "string"
  );
}

export const textOf = (error: unknown) =>
  isTesseraError(error)
    ? `${error.code}: ${error.message}`
    : error instanceof Error
      ? `${error.name}: ${error.message}`
      : String(error);

function wants<T extends { name: string }>(
  filter: readonly string[] | RegExp | ((item: T) => boolean) | undefined,
  item: T,
): boolean {
  if (filter === undefined) return true;
  if (typeof filter === "function") return filter(item);
  if (filter instanceof RegExp) return filter.test(item.name);
  return filter.length === 0 || filter.includes(item.name);
}

/** Back ends in TypeScript. */
const engineChecks = new Set(["reference", "webgpu"]);

const levels: Record<Level, number> = { quick: 0, full: 1, long: 2 };

type Selection = Pick<ConformanceOptions, "cases" | "table" | "quick" | "long" | "badInput" | "part">;

function fromTable({ table = allCases, cases, quick, long, part }: Selection): Case[] {
  const level = quick ? 0 : long ? 2 : 1;
  return partOf(
    table.filter((c) => levels[c.level] <= level && wants(cases, c)),
    part,
  );
}

function spoilt({ cases, badInput = true, part }: Selection): BadCase[] {
  return badInput
    ? partOf(
        badCases.filter((c) => wants(cases as never, c)),
        part,
      )
    : [];
}

const partOf = <T>(all: T[], [n, of]: readonly [number, number] = [0, 1]) => all.filter((_, i) => i % of === n);

/** What a run with these options goes through. */
export function selectCases(options: Selection = {}): { readonly name: string }[] {
  return [...fromTable(options), ...spoilt(options)];
}

/** @throws `signal.reason` when aborted; TesseraError if the device can't be opened. Failures are in the report. */
export async function runConformance(options: ConformanceOptions): Promise<ConformanceReport> {
  const { backend, signal, maxFailures = 200 } = options;
  const started = performance.now();
  const context = await backend.open({ device: options.device ?? 0, threads: options.threads });
  const counts = new Map<string, KernelCounts>();
  const failures: Failure[] = [];
  const unsupported: Unsupported[] = [];
  const skipped: Record<string, number> = {};
  let passed = 0;
  let failed = 0;
  const late = () => Date.now() > (options.until ?? Number.POSITIVE_INFINITY);
  try {
    const catalogue = context.kernels();
    for (const kernel of catalogue) {
      if (!kernel.usable)
        skipped[`${kernel.name}: ${kernel.reason || "unusable, and the back end doesn't say why"}`] = 1;
    }
    const kernels = catalogue.filter((kernel) => kernel.usable && wants(options.kernels, kernel));
    for (const { name } of kernels) counts.set(name, { name, passed: 0, failed: 0, unsupported: 0 });
    const cell: Omit<Cell, "record"> = {
      context,
      kernels,
      layouts: options.layouts?.length ? options.layouts : options.quick ? ["contiguous", "sliced"] : allLayouts,
      complete: backend.name === "cpu" || backend.name === "reference",
      exactNaN: ["cpu", "reference", "webgpu"].includes(backend.name),
    };
    const chosen = fromTable(options);
    const bad = spoilt({ ...options, badInput: options.badInput ?? !engineChecks.has(backend.name) });
    const total = chosen.length + bad.length;
    let done = 0;
    const recorder = (name: string): Recorder => ({
      pass(kernel) {
        passed++;
        const count = counts.get(kernel);
        if (count) count.passed++;
      },
      fail(layout, kernel, check, message) {
        failed++;
        const count = counts.get(kernel);
        if (count) count.failed++;
        if (failures.length < maxFailures) {
          failures.push({ id: `${name}/${layout}/${kernel}`, case: name, layout, kernel, check, message });
        }
      },
      unsupported(layout, kernel, reason) {
        const count = counts.get(kernel);
        if (count) count.unsupported++;
        unsupported.push({ id: `${name}/${layout}/${kernel}`, reason });
      },
      skip(reason) {
        skipped[reason] = (skipped[reason] ?? 0) + 1;
      },
    });
    for (const c of chosen) {
      signal?.throwIfAborted();
      if (failed >= maxFailures || late()) break;
      options.onProgress?.({ done, total, case: c.name, failed });
      const record = recorder(c.name);
      try {
        if (c.kind === "attention") await runAttention(c, { ...cell, record });
        else if (c.kind === "append") await runAppend(c, { ...cell, record });
        else await runMerge(c, { ...cell, record });
      } catch (error) {
        record.fail("-", "-", "error", textOf(error));
      }
      done++;
    }
    for (const c of bad) {
      signal?.throwIfAborted();
      if (late()) break;
      options.onProgress?.({ done, total, case: c.name, failed });
      await runBad(c, context, recorder(c.name));
      done++;
    }
    if (total > 0) options.onProgress?.({ done, total, case: "", failed });
    return {
      backend: backend.name,
      version: backend.version,
      device: context.device.name,
      conformant: failed === 0 && passed > 0,
      cases: done,
      selected: total,
      passed,
      failed,
      unsupported,
      skipped,
      kernels: [...counts.values()],
      failures,
      seconds: (performance.now() - started) / 1000,
    };
  } finally {
    context.dispose();
  }
}

/** A report as text: one line a failure, then the counts. */
export function summarize(report: ConformanceReport, maxFailures = 20): string {
  const lines = report.failures.slice(0, maxFailures).map((f) => `FAIL ${f.id} [${f.check}] ${f.message}`);
  if (report.failed > lines.length) lines.push(`... and ${report.failed - lines.length} more`);
  for (const k of report.kernels) {
    lines.push(`${k.name}: ${k.passed} passed, ${k.failed} failed, ${k.unsupported} declined`);
  }
  for (const [reason, n] of Object.entries(report.skipped)) lines.push(`skipped ${n}: ${reason}`);
  lines.push(
    `${report.backend} ${report.version} on ${report.device}: ${report.cases} cases, ${report.passed} passed, ` +
      `${report.failed} failed, ${report.unsupported.length} declined, ${report.seconds.toFixed(1)} s`,
  );
  return lines.join("\n");
}
