/** How a tensor is known without importing its class: the oracle and the checks need no engine. */
import type { TensorDesc } from "./backend.js";

export const tensorBrand = Symbol.for("tessera.tensor");

/** What the checks need of a tensor. */
export interface TensorLike {
  readonly disposed: boolean;
  /** @internal The engine it belongs to. */
  readonly owner: object;
  /** @internal */
  readonly desc: TensorDesc;
}

/** Whether a value is a tensor, of whichever copy of this package. */
export function isTensor(value: unknown): value is TensorLike {
  return typeof value === "object" && value !== null && (value as Record<symbol, unknown>)[tensorBrand] === true;
}
