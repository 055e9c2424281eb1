import { defineConfig } from "tsup";

export default defineConfig([
  {
    entry: { index: "src/index.ts", "profile-child": "src/profile-child.ts" },
    format: ["esm"],
    target: "node20",
    dts: { entry: "src/index.ts" },
    sourcemap: true,
    clean: true,
  },
  {
    // The script of the report's page, with the chart library in it: the page asks no network.
    entry: { page: "src/page/main.ts" },
    format: ["iife"],
    platform: "browser",
    target: "es2022",
    noExternal: [/.*/],
    minify: true,
    outExtension: () => ({ js: ".js" }),
  },
]);
