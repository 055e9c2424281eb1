// npm run demo: set-up, then the main job on real input: which devices there are, attention of a real model's six layers
// checked against the float64 oracle and the stored results, and a picture of the attention of the first.
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
const layers = [0, 1, 2, 3, 4, 5].flatMap((layer) => ["--prefix", `layer${layer}.`]);
tessera("attend", file, ...layers, "--causal", "--check");
tessera("attend", file, "--prefix", "layer0.", "--causal", "--map", join("out", "demo", "attention-map.svg"));
