/**
 * Benchmarks of attention on any device, their result files and their report.
 *
 * @packageDocumentation
 */

export type { AttentionCase, Case, Extra, MemoryCase, OverheadCase, UnfusedCase } from "./case.js";
export { withProfiles } from "./profile.js";
export { csvOf } from "./report/csv.js";
export { modelOf, type NamedResult, type ReportDevice, type ReportModel, type ReportRow } from "./report/model.js";
export { renderReport } from "./report/render.js";
export type * from "./result.js";
export { type BenchOptions, type BenchProgress, runBench } from "./run.js";
export { casesOf, type SuiteName, suiteNames, suiteTexts } from "./suites.js";
export { runTune, type TunedCase, type TuneOptions, type TuneProgress } from "./tune.js";
export { BadResult, parseResult, validateResult } from "./validate.js";
