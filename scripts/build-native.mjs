// node scripts/build-native.mjs cpu|addon: what the build:native scripts of the packages call.
// node scripts/build-native.mjs cuda [architectures]: the CUDA back end, for all architectures (many minutes) or for those
// given: "cuda 90" is machine code for sm_90 alone, "cuda 80 80-ptx" with PTX.
// node scripts/build-native.mjs hip [architectures]: likewise the HIP back end: "hip gfx942", "hip gfx1100 gfx1201".
// node scripts/build-native.mjs ggml [checkout]: the plug-in for llama.cpp, for the ggml that npm carries (which is installed),
// or for that of a checkout: the folder ggml of llama.cpp.
// node scripts/build-native.mjs cross linux-arm64-gnu|win32-x64: the addon, the CPU back end and, on
// Linux, the plug-in for another platform, into build/.
import { buildPlugin, installRuntime, unpackSources } from "./lib/ggml.mjs";
import {
  buildAddon,
  buildCross,
  buildCuda,
  buildHip,
  buildTarget,
  findHipCompiler,
  findNvcc,
  noHipCompiler,
  noNvcc,
  requireNativeTools,
} from "./lib/native.mjs";
import { fail } from "./lib/sh.mjs";

const [what, ...architectures] = process.argv.slice(2);
requireNativeTools();
if (what === "cpu") buildTarget("tessera-cpu");
else if (what === "addon") buildAddon();
else if (what === "cuda") {
  if (!findNvcc()) fail(`The CUDA back end can't be built here: ${noNvcc}.`);
  buildCuda(["tessera-cuda"], architectures);
} else if (what === "hip") {
  if (!findHipCompiler()) fail(`The HIP back end can't be built here: ${noHipCompiler}.`);
  buildHip(["tessera-hip"], architectures.length > 0 ? architectures : undefined);
} else if (what === "ggml") {
  const [checkout] = architectures;
  const hindrance = checkout ? undefined : (installRuntime() ?? unpackSources());
  if (hindrance) fail(`The ggml plug-in can't be built here: ${hindrance}.`);
  buildPlugin("ggml-tessera", { checkout });
} else if (what === "cross") buildCross(architectures[0]);
else fail("usage: node scripts/build-native.mjs cpu|addon|cuda|hip [architectures] | ggml [CHECKOUT] | cross PLATFORM");
