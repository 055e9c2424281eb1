// node scripts/build-native.mjs cpu|addon: what the build:native scripts of the packages call.
import { buildAddon, buildTarget, requireNativeTools } from "./lib/native.mjs";
import { fail } from "./lib/sh.mjs";

const what = process.argv[2];
requireNativeTools();
if (what === "cpu") buildTarget("tessera-cpu");
else if (what === "addon") buildAddon();
else fail("usage: node scripts/build-native.mjs cpu|addon");
