// Written by scripts/platform-packages.mjs. Where the library is: in a clone what was built here, else in the package for
// this platform, which the package manager picks by os, cpu and libc.
const { existsSync } = require("node:fs");
const { join } = require("node:path");

const file = "libggml-tessera-2.so";

/** As @tessera/core names it (src/native/platform.ts). */
function platform() {
  const base = `${process.platform}-${process.arch}`;
  if (process.platform !== "linux" || !process.report) return base;
  const { excludeNetwork } = process.report;
  process.report.excludeNetwork = true; // else it may ask DNS
  const { glibcVersionRuntime } = process.report.getReport().header;
  process.report.excludeNetwork = excludeNetwork;
  return `${base}-${glibcVersionRuntime ? "gnu" : "musl"}`;
}

function find(platformPackage) {
  const built = join(__dirname, "lib", file);
  if (existsSync(built)) return built;
  try {
    return require.resolve(`${platformPackage}/${file}`);
  } catch {
    return undefined;
  }
}

exports.platformPackage = `@tessera/ggml-${platform()}`;
exports.library = find(exports.platformPackage);
