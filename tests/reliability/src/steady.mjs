// Memory of a process as its code leaves it. With glibc's own settings the heap of malloc shrinks only where its end is free: host arrays
// that JavaScript's collector frees some time later made it 8 MiB in one moment and 36 in another, with nothing lost (1 December 2026).
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";

/**
 * Starts the script again, with malloc told to give back what is freed and with a young heap that doesn't grow with the load, and ends
 * with it; in that process it returns. What has 8 KiB goes back at once; with 64 the soak ended 4 MiB lower one time and 8 higher another.
 */
export function steadily() {
  if (process.env.TESSERA_STEADY === "1") return;
  const malloc = { MALLOC_ARENA_MAX: "1", MALLOC_MMAP_THRESHOLD_: "8192", MALLOC_TRIM_THRESHOLD_: "4096" };
  const { status } = spawnSync(process.execPath, ["--expose-gc", "--max-semi-space-size=1", ...process.argv.slice(1)], {
    stdio: "inherit",
    env: { ...process.env, ...malloc, MALLOC_TOP_PAD_: "0", TESSERA_STEADY: "1" },
  });
  process.exit(status ?? 1);
}

/** Pages that are of no file: those of libraries come in as they are first used. */
const anonymous = () => 1024 * Number(/^RssAnon:\s*(\d+) kB/m.exec(readFileSync("/proc/self/status", "utf8"))[1]);

/** Bytes of the process, and of JavaScript's heap. The smallest of several looks: what the collector holds for a while isn't lost. */
export async function look() {
  const least = { memory: Number.POSITIVE_INFINITY, heapTotal: 0, heapUsed: Number.POSITIVE_INFINITY };
  for (let i = 0; i < 10; i++) {
    globalThis.gc();
    await new Promise((resolve) => setTimeout(resolve, 20));
    const { heapTotal, heapUsed } = process.memoryUsage();
    const memory = anonymous();
    if (memory < least.memory) Object.assign(least, { memory, heapTotal });
    least.heapUsed = Math.min(least.heapUsed, heapUsed);
  }
  return least;
}

/**
 * What was added between two looks: to the process, to what JavaScript uses, and to the process without JavaScript's heap, whose pages
 * fill with compiled code and with holes.
 */
export function growth(before, after) {
  const grown = after.memory - before.memory;
  return { grown, used: after.heapUsed - before.heapUsed, native: grown - (after.heapTotal - before.heapTotal) };
}
