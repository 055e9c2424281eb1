import type { ConformanceReport, LayoutName, Progress } from "@tessera/conformance";

/** What the child is asked, as its one argument. */
export interface ConformRequest {
  readonly library: string;
  readonly device?: number | undefined;
  readonly threads?: number | undefined;
  /** Source of a regular expression on case names. */
  readonly filter?: string | undefined;
  readonly kernels?: readonly string[] | undefined;
  readonly layouts?: readonly LayoutName[] | undefined;
  readonly quick?: boolean | undefined;
  readonly long?: boolean | undefined;
  /** A part of the table, and a moment to end at: what `runConformance` takes. */
  readonly part?: readonly [number, number] | undefined;
  readonly until?: number | undefined;
}

/** What it answers, in this order: loaded, progress..., and one of the others. */
export type ConformMessage =
  | { readonly kind: "loaded"; readonly name: string; readonly version: string }
  | { readonly kind: "progress"; readonly progress: Progress }
  | { readonly kind: "report"; readonly report: ConformanceReport }
  | { readonly kind: "no-device"; readonly reason: string; readonly fix: string }
  | { readonly kind: "error"; readonly code: string; readonly message: string };
