import { tmpdir } from "node:os";
import { join } from "node:path";
import { configDefaults, defineConfig } from "vitest/config";

// Quick suites are *.test.ts, long ones *.long.test.ts. TESSERA_LONG=1 (set by the long lanes) runs the long ones only.
export function tests() {
  const long = process.env.TESSERA_LONG === "1";
  return defineConfig({
    test: {
      include: [long ? "**/*.long.test.ts" : "**/*.test.ts"],
      exclude: long ? configDefaults.exclude : [...configDefaults.exclude, "**/*.long.test.ts"],
      // Native code and worker_threads want a process of their own; two, as the smallest machine has two cores.
      // What tests tune is nobody else's business.
      env: { TESSERA_CACHE_DIR: join(tmpdir(), `tessera-tests-${process.pid}`) },
      pool: "forks",
      maxWorkers: 2,
      maxConcurrency: 2,
      testTimeout: long ? 1_800_000 : 60_000,
      hookTimeout: 60_000,
    },
  });
}
