/** The case table that every back end is held to, and its runner. docs/conformance.md explains both. */
export type { AppendCase, AttentionCase, Case, Level, MergeCase } from "./case.js";
export { cases } from "./cases/index.js";
export { type LayoutName, layouts } from "./layout.js";
export {
  type ConformanceOptions,
  type ConformanceReport,
  type Failure,
  type KernelCounts,
  type Progress,
  runConformance,
  selectCases,
  summarize,
  type Unsupported,
} from "./run.js";
