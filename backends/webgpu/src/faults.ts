/** What WebGPU says went wrong, as TesseraErrors. It says it later: at the next `synchronize` or `read`. */
import { TesseraError } from "@tessera/core/web";

export class Faults {
  #fault: TesseraError | undefined;
  #lost: TesseraError | undefined;
  #ending = false;

  /** @param onFault called when something went wrong with what was enqueued */
  constructor(device: GPUDevice, onFault: () => void) {
    device.addEventListener("uncapturederror", ({ error }) => {
      this.#fault ??= errorOf(error);
      onFault();
    });
    void device.lost.then(({ reason, message }) => {
      if (this.#ending) return;
      const why = message === "" ? "" : `: ${message}`;
      this.#lost = new TesseraError(
        "device-error",
        `the WebGPU device was lost (${reason ?? "unknown"})${why}. Its tensors are gone; open another engine to go on`,
      );
    });
  }

  /** The device is given up on purpose. */
  end(): void {
    this.#ending = true;
  }

  /** @throws TesseraError `device-error` once the device is lost: nothing works any more */
  alive(): void {
    if (this.#lost) throw this.#lost;
  }

  /** @throws TesseraError of work that was only enqueued, once */
  surface(): void {
    this.alive();
    const fault = this.#fault;
    this.#fault = undefined;
    if (fault) throw fault;
  }
}

function errorOf(error: GPUError): TesseraError {
  const memory = error.constructor.name === "GPUOutOfMemoryError";
  return new TesseraError(
    memory ? "out-of-memory" : "device-error",
    `WebGPU: ${error.message.trim().replaceAll(/\s+/g, " ").slice(0, 500)}`,
    { cause: error },
  );
}
