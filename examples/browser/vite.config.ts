import { defineConfig } from "vite";

// Relative paths: the page may be served from any folder.
export default defineConfig({ base: "./", build: { target: "es2022", assetsInlineLimit: 0 } });
