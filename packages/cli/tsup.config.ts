import { defineConfig } from "tsup";

export default defineConfig({
  entry: { main: "src/main.ts", "conform-child": "src/conform/child.ts" },
  format: ["esm"],
  target: "node20",
  noExternal: ["@tessera/conformance"], // private source package: `tessera conform` carries the case table with it
  sourcemap: true,
  clean: true,
});
