/** Calls that the addon has not settled yet. */
import { done } from "../done.js";
import { type AddonContext, aborted, type CallId, errorOfStatus } from "./addon.js";

interface Pending {
  /** What native code still reads or writes. */
  readonly kept: unknown;
  settle(status: number, text: string): void;
}

const pending = new Map<number, Pending>();

const nothing = () => {};

/** Told by the addon, once for each call. Writes have nobody who waits. */
export function settle(id: number, status: number, text: string): void {
  const call = pending.get(id);
  pending.delete(id);
  call?.settle(status, text);
}

/** The promise of a call, `done` if there is nothing to wait for: see CallId. */
export function outcome(id: CallId, kept: unknown, native: AddonContext, signal?: AbortSignal): Promise<void> {
  if (id > 0) return settled(id, kept, native, signal);
  if (id < 0) pending.set(-id, { kept, settle: nothing });
  return done;
}

function settled(id: number, kept: unknown, native: AddonContext, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    // A call that runs is only told to stop: it is settled once it has let go of its memory.
    const abort = () => {
      if (!native.cancel(id)) return;
      pending.delete(id);
      reject(signal?.reason);
    };
    signal?.addEventListener("abort", abort, { once: true });
    pending.set(id, {
      kept,
      settle(status, text) {
        signal?.removeEventListener("abort", abort);
        if (signal?.aborted) reject(signal.reason);
        else if (status === 0) resolve();
        else reject(errorOfStatus(status, status === aborted ? `the call was cancelled: ${text}` : text));
      },
    });
  });
}
