// npm run demo: set-up, then the main job on real input: which devices there are, and attention of a real model's
// layer checked against the float64 oracle, with a picture of its attention map.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { root, run } from "./lib/sh.mjs";
import { setup } from "./setup.mjs";

setup();
const folder = join(root, "out", "demo");
mkdirSync(folder, { recursive: true });
const tessera = (...args) => {
  console.log(`\n$ tessera ${args.join(" ")}`);
  run(process.execPath, [join(root, "packages/cli/bin/tessera.js"), ...args]);
};
tessera("devices");
const file = join("examples", "data", "kjv-qkv.safetensors");
tessera(
  "attend",
  file,
  "--prefix",
  "layer0.",
  "--causal",
  "--check",
  "--map",
  join("out", "demo", "attention-map.svg"),
);
