import { defineConfig } from "tsup";

// dist/ is flat, like src/: a path relative to import.meta.url (the addon) is the same in both.
export default defineConfig({
  entry: ["src/index.ts", "src/web.ts"],
  format: ["esm", "cjs"],
  target: "node20",
  dts: { entry: ["src/index.ts", "src/web.ts"], banner: '/// <reference lib="esnext.disposable" />' }, // Symbol.dispose for any --lib
  shims: true, // import.meta.url in the CJS build
  sourcemap: true,
  clean: true,
});
