import { defineConfig } from "tsup";

// library.cjs stays a file of its own at the package's root: where the library is, is told from there.
export default defineConfig({
  entry: ["src/index.ts"],
  format: ["esm", "cjs"],
  target: "node20",
  dts: true,
  shims: true, // import.meta.url in the CJS build
  sourcemap: true,
  clean: true,
  external: ["../library.cjs"],
});
