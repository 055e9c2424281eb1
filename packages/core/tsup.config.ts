import { defineConfig } from "tsup";

// dist/ is flat, like src/: a path relative to import.meta.url (the addon, a child's entry) is the same in both.
// A file that Node starts by itself is an entry of its own: name it *-child.ts (child process) or *-worker.ts.
export default defineConfig({
  entry: ["src/index.ts", "src/*-child.ts", "src/*-worker.ts"],
  format: ["esm", "cjs"],
  target: "node20",
  dts: { entry: "src/index.ts", banner: '/// <reference lib="esnext.disposable" />' }, // Symbol.dispose for any --lib
  shims: true, // import.meta.url in the CJS build
  sourcemap: true,
  clean: true,
});
