/** Bytes to, from and within a device's buffers. Queue copies want multiples of four; a shader moves the rest. */

import type { Target } from "./attention.js";
import { type Commands, gridOf } from "./commands.js";
import type { WebGpuBuffer } from "./memory.js";
import { shader } from "./pipelines.js";
import { packParams } from "./wgsl/fields.js";
import { moveFields, moveShader } from "./wgsl/move.js";

const down = (n: number, to: number) => Math.floor(n / to) * to;
const up = (n: number, to: number) => Math.ceil(n / to) * to;

/** Takes `source` before it returns. */
export function writeBytes(
  device: GPUDevice,
  target: Target,
  begin: () => Commands,
  buffer: WebGpuBuffer,
  at: number,
  source: Uint8Array,
): void {
  const even = at % 4 === 0 && (source.length % 4 === 0 || at + source.length === buffer.bytes);
  // A copy: of shared memory too, and with a length that queues take.
  const taken = new Uint8Array(up(source.length, 4));
  taken.set(source);
  if (taken.length === 0) return;
  if (even) {
    device.queue.writeBuffer(buffer.gpu, at, taken);
    return;
  }
  const from = target.memory.scratch("storage", "upload", taken.length);
  device.queue.writeBuffer(from, 0, taken);
  const commands = begin();
  recordMove(target, commands, from, 0, buffer.gpu, at, source.length);
  commands.submit(target.can.submissionWork);
}

export function copyBytes(
  target: Target,
  begin: () => Commands,
  from: WebGpuBuffer,
  at: number,
  to: WebGpuBuffer,
  toAt: number,
  bytes: number,
): void {
  if (bytes === 0) return;
  const commands = begin();
  const even = at % 4 === 0 && toAt % 4 === 0 && bytes % 4 === 0;
  let [source, sourceAt] = [from.gpu, at];
  if (from === to) {
    const begins = down(at, 4);
    source = target.memory.scratch("storage", "apart copy", up(at + bytes, 4) - begins);
    commands.copy({ buffer: from.gpu, offset: begins, size: up(at + bytes, 4) - begins }, source, 0);
    sourceAt = at - begins;
  }
  if (even) commands.copy({ buffer: source, offset: sourceAt, size: bytes }, to.gpu, toAt);
  else recordMove(target, commands, source, sourceAt, to.gpu, toAt, bytes);
  commands.submit(target.can.submissionWork);
}

function recordMove(
  { can }: Target,
  commands: Commands,
  from: GPUBuffer,
  at: number,
  to: GPUBuffer,
  toAt: number,
  bytes: number,
): void {
  // Of both buffers only what is needed, in steps that a binding can have.
  const most = down(can.bindingBytes, 4096) - 4096;
  for (let done = 0; done < bytes; done += most) {
    const now = Math.min(most, bytes - done);
    const [fromOffset, toOffset] = [down(at + done, 256), down(toAt + done, 256)];
    const [fromByte, toByte] = [at + done - fromOffset, toAt + done - toOffset];
    const { groups, gridWidth } = gridOf(Math.ceil((now + 8) / 256), can.gridWidth);
    commands.dispatch({
      shader: shader("move", "", () => moveShader),
      work: now,
      groups,
      params: packParams(moveFields, { begin: fromByte, goal: toByte, bytes: now, gridWidth }),
      bindings: {
        1: { buffer: from, offset: fromOffset, size: up(fromByte + now, 4) },
        7: { buffer: to, offset: toOffset, size: up(toByte + now, 4) },
      },
    });
  }
}

/** Resolves when `target` is filled. */
export async function readBytes(
  device: GPUDevice,
  buffer: WebGpuBuffer,
  at: number,
  target: Uint8Array,
): Promise<void> {
  if (target.length === 0) return;
  const begins = down(at, 4);
  const size = up(at + target.length, 4) - begins;
  const staging = device.createBuffer({ size, usage: 0x1 | 0x8 }); // MAP_READ | COPY_DST
  try {
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer.gpu, begins, staging, 0, size);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(0x1); // READ
    target.set(new Uint8Array(staging.getMappedRange(), at - begins, target.length));
  } finally {
    staging.destroy();
  }
}
