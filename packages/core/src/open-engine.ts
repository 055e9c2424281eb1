/** The way in: `openEngine`, and the one-shot `attention` on the best device. */

import { announceCopy } from "./announce-copy.js";
import type { AttentionOptions, AttentionResult, AttentionResultWithLse, KvOperand } from "./attention-options.js";
import { type BackendName, backendNames, loadBackend } from "./backends.js";
import { Engine } from "./engine.js";
import type { HostTensor } from "./host-tensor.js";
import { probe } from "./probe.js";
import { type EngineOptions, selectBackend, type World } from "./select-backend.js";
import { deviceKey, TuneStore } from "./tune-store.js";

const machine: World = {
  names: backendNames,
  probe: (which) => probe(which as { backends?: readonly BackendName[]; library?: string }),
  load: (which) => loadBackend(which as BackendName | { readonly library: string }),
  get environment() {
    return process.env;
  },
};

/** `openEngine` in a world of its own, for tests. */
export async function openEngineIn(world: World, options: EngineOptions = {}): Promise<Engine> {
  const { backend, device, selection } = await selectBackend(options, world);
  announceCopy();
  const { threads } = options;
  const context = await backend.open({ device, threads });
  const key = deviceKey(backend.name, backend.version, context.device, threads);
  return new Engine(backend.name, context, selection, new TuneStore(key));
}

/**
 * Opens a device.
 *
 * @param options default: the best device that works, `engine.selection` says how it was found; where no native code
 *   loads, the float64 reference in TypeScript
 * @throws TesseraError if a back end or device that is named can't be used: `backend-missing`, `abi-mismatch`,
 *   `device-unavailable`; no other takes its place
 */
export function openEngine(options: EngineOptions = {}): Promise<Engine> {
  return openEngineIn(machine, options);
}

let shared: Promise<Engine> | undefined;

/** One engine for all one-shot calls of the process; opened by the first, never closed. */
function sharedEngine(): Promise<Engine> {
  shared ??= openEngine().catch((error: unknown) => {
    // Another call may find a device that this one did not.
    shared = undefined;
    throw error;
  });
  return shared;
}

/**
 * Fused attention in one call on the best device: host arrays in, host arrays out. The first call opens an engine that
 * all later ones share and that stays open; open your own to choose the device, to keep tensors there, or to close it.
 *
 * @throws TesseraError as `openEngine` and `engine.attention` do
 */
export function attention<
  Q extends HostTensor,
  Out extends HostTensor = Q,
  K extends KvOperand = KvOperand,
  V extends KvOperand = KvOperand,
>(options: AttentionOptions<Q, Out, K, V> & { readonly returnLse: true }): Promise<AttentionResultWithLse<Out>>;
export function attention<
  Q extends HostTensor,
  Out extends HostTensor = Q,
  K extends KvOperand = KvOperand,
  V extends KvOperand = KvOperand,
>(options: AttentionOptions<Q, Out, K, V>): Promise<AttentionResult<Out>>;
export async function attention(options: AttentionOptions): Promise<unknown> {
  options?.signal?.throwIfAborted();
  const engine = await sharedEngine();
  return engine.attention(options);
}
