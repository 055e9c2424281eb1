/** Calls that wait keep the tensors that they were given, whatever their owner does meanwhile. */
import type { Tensor } from "./tensor.js";
import { isTensor } from "./tensor-brand.js";

/** The same options with views of their tensors, which `release` gives up. */
export function holdTensors<O extends object>(options: O): { readonly options: O; release(): void } {
  const views: Tensor[] = [];
  const hold = (value: unknown): unknown => {
    if (!isTensor(value) || value.disposed) return value;
    const view = (value as Tensor).slice(0, 0);
    views.push(view);
    return view;
  };
  const all = (given: object): object => {
    const held: Record<string, unknown> = {};
    for (const name in given) {
      const value = (given as Record<string, unknown>)[name];
      held[name] = name === "rope" && typeof value === "object" && value !== null ? all(value) : hold(value);
    }
    return held;
  };
  return {
    options: all(options) as O,
    release: () => {
      for (const view of views) view.dispose();
    },
  };
}
