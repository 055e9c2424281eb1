// From a fresh clone to something that runs: install (only if the lock file asks for it), then build what this machine
// can run. Nothing is downloaded but npm packages.
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "./build.mjs";
import { requireNativeTools } from "./lib/native.mjs";
import { fail, isMain, root, run } from "./lib/sh.mjs";

const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const stampFile = join(root, "node_modules", ".tessera-setup");

/** Changes whenever an install could have something to do. */
function wanted() {
  const hash = createHash("sha256").update(process.version);
  const files = ["pnpm-lock.yaml", "pnpm-workspace.yaml", "package.json"];
  for (const group of ["packages", "backends", "tests", "examples"])
    for (const name of readdirSync(join(root, group)).sort()) files.push(join(group, name, "package.json"));
  for (const file of files) if (existsSync(join(root, file))) hash.update(file).update(readFileSync(join(root, file)));
  return hash.digest("hex");
}

function install() {
  const stamp = wanted();
  if (existsSync(stampFile) && readFileSync(stampFile, "utf8") === stamp) return;
  const pnpm = manifest.packageManager.split("+")[0];
  console.error(`Installing with ${pnpm} …`);
  run("npx", ["--yes", pnpm, "install", "--frozen-lockfile", "--reporter=append-only"]);
  writeFileSync(stampFile, stamp);
}

export function setup() {
  const [major, minor] = process.versions.node.split(".").map(Number);
  if (major < 20 || (major === 20 && minor < 19))
    fail(
      `Tessera needs Node ${manifest.engines.node}; this is ${process.version}. Install a newer one from your system or nodejs.org.`,
    );
  requireNativeTools(); // before the install: the reader should not wait for it to learn that cmake is missing
  install();
  build();
}

if (isMain(import.meta)) setup();
