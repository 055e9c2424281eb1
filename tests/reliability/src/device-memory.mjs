/**
 * Bytes that a device's own driver has free, which other processes on it change too. No call of the contract tells them but the
 * refusal of memory that can't be had; what the back end keeps for later goes back to the driver before it refuses.
 */
export function freeMemory(engine) {
  const held = engine.empty({ shape: [1], dtype: "f32" }); // so that all of it can't be had
  try {
    engine.empty({ shape: [Math.floor(engine.device.memoryBytes / 4)], dtype: "f32" }).dispose();
  } catch (error) {
    const free = /has (\d+) of \d+ bytes free/.exec(error.message)?.[1];
    if (free === undefined) throw error;
    return Number(free);
  } finally {
    held.dispose();
  }
  throw new Error("all memory of the device could be had at once");
}
