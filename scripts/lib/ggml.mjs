// What the ggml plug-in is built for: headers and sources of llama.cpp, out of the npm package node-llama-cpp, which carries
// them as a git bundle. It is installed into packages/ggml/runtime, with a lock file of its own, by whoever needs it first.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parts } from "./platforms.mjs";
import { jobs, output, root, run, which } from "./sh.mjs";

export const runtimeFolder = join(root, "packages/ggml/runtime");
const modules = join(runtimeFolder, "node_modules");
const work = join(root, "build/ggml");

/** The prebuilt libraries of the runtime for this machine, whether they are there or not. */
export const prebuilt = join(modules, "@node-llama-cpp/linux-x64/bins/linux-x64");
/** llama.cpp's sources, once unpackSources() has been here. */
export const sources = join(work, "llama.cpp");
export const headers = join(work, "headers");
export const plugin = join(root, parts.ggml.folder, parts.ggml.built);

/** Installs the runtime if that isn't done. Returns what hinders, or undefined. */
export function installRuntime() {
  const lock = readFileSync(join(runtimeFolder, "package-lock.json"));
  const stamp = createHash("sha256").update(lock).digest("hex");
  const stampFile = join(modules, ".tessera-runtime");
  if (existsSync(stampFile) && readFileSync(stampFile, "utf8") === stamp) return undefined;
  console.error("Installing node-llama-cpp into packages/ggml/runtime …");
  // Its install script would look for a GPU and build; its optional dependencies are 600 MB for other systems.
  // (Not `npm ci`: it refuses a lock file without those of them that a registry may not have.)
  const flags = ["install", "--no-save", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund"];
  const { status, stderr, error } = spawnSync("npm", flags, { cwd: runtimeFolder, encoding: "utf8", timeout: 600_000 });
  if (status !== 0)
    return `npm install in packages/ggml/runtime failed: ${error?.message ?? stderr.trim().split("\n")[0]}`;
  writeFileSync(stampFile, stamp);
  return undefined;
}

/** Sources and headers out of the installed package. Returns what hinders, or undefined. */
export function unpackSources() {
  if (!which("git")) return "git is missing: node-llama-cpp carries llama.cpp as a git bundle";
  const { version } = JSON.parse(readFileSync(join(modules, "node-llama-cpp/package.json"), "utf8"));
  const stampFile = join(work, "sources-of");
  if (existsSync(stampFile) && readFileSync(stampFile, "utf8") === version) return undefined;
  rmSync(sources, { recursive: true, force: true });
  mkdirSync(work, { recursive: true });
  const bundle = join(modules, "node-llama-cpp/llama/gitRelease.bundle");
  if (output("git", ["-c", "advice.detachedHead=false", "clone", "--quiet", bundle, sources]) === null)
    return `git can't clone ${bundle}`;
  copyHeaders(join(sources, "ggml"), headers);
  writeFileSync(stampFile, version);
  return undefined;
}

/** The four headers that the plug-in includes, from a checkout of ggml (llama.cpp's folder ggml). */
function copyHeaders(from, to) {
  rmSync(to, { recursive: true, force: true });
  mkdirSync(to, { recursive: true });
  for (const file of ["include/ggml.h", "include/ggml-alloc.h", "include/ggml-backend.h", "src/ggml-backend-impl.h"])
    cpSync(join(from, file), join(to, file.split("/")[1]));
}

/**
 * The plug-in: packages/ggml/lib/libggml-tessera-<API version>.so, or, with `variant` ("arm64"), in build/<variant>-ggml.
 * `checkout`: a ggml checkout to build for, in place of what npm carries. Returns the build's folder.
 */
export function buildPlugin(target, { checkout, variant, options = [] } = {}) {
  const folder = variant ? join(root, `build/${variant}-ggml`) : work;
  const include = checkout ? join(folder, "headers-of-checkout") : headers;
  if (checkout) copyHeaders(checkout, include);
  const place = variant ? [`-DTSR_GGML_LIBRARY_FOLDER=${folder}`] : [];
  run("cmake", [
    ...["-S", "packages/ggml/native", "-B", folder, `-DTSR_GGML_HEADERS=${include}`, "--log-level=WARNING"],
    ...["--no-warn-unused-cli", ...place, ...options],
  ]);
  run("cmake", ["--build", folder, "--parallel", jobs, "--target", target]);
  return folder;
}

/** llama.cpp's own test of its operators, linked against the prebuilt libraries. Returns the program's path. */
export function buildBackendOps() {
  const program = join(work, "test-backend-ops");
  const source = join(sources, "tests/test-backend-ops.cpp");
  const stampFile = `${program}.of`;
  const version = readFileSync(join(work, "sources-of"), "utf8");
  if (existsSync(program) && existsSync(stampFile) && readFileSync(stampFile, "utf8") === version) return program;
  const libraries = readdirSync(prebuilt)
    .filter((name) => /^libggml(-base|\.v[\d.]+)\.so$/.test(name))
    .map((name) => join(prebuilt, name));
  const prelude = join(root, "packages/ggml/test/backend-ops/one_thread.h");
  run(process.env.CXX ?? "c++", [
    ...["-std=c++17", "-O1", `-I${join(sources, "ggml/include")}`, `-I${join(sources, "ggml/src")}`],
    ...["-include", prelude, source, "-o", program, ...libraries, `-Wl,-rpath,${prebuilt}`, "-pthread"],
  ]);
  writeFileSync(stampFile, version);
  return program;
}

/**
 * A folder where the CPU plays a GPU: the prebuilt libraries, a CUDA back end of ggml and a driver that are played
 * (packages/ggml/test/played), and the CPU engine under the CUDA engine's name.
 */
export function buildPlayedCuda() {
  const folder = join(work, "played");
  const from = join(root, "packages/ggml/test/played");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const name of readdirSync(prebuilt)) symlinkSync(join(prebuilt, name), join(folder, name));
  const libraries = readdirSync(prebuilt)
    .filter((name) => /^libggml(-base|\.v[\d.]+)\.so$/.test(name))
    .map((name) => join(prebuilt, name));
  const flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Werror"];
  const include = ["ggml/include", "ggml/src"].map((name) => `-I${join(sources, name)}`);
  run(process.env.CXX ?? "c++", [
    ...[...flags, ...include, join(from, "cuda_backend.cpp")],
    ...["-o", join(folder, "libggml-cuda.so"), ...libraries],
  ]);
  run(process.env.CXX ?? "c++", [...flags, join(from, "driver.cpp"), "-o", join(folder, "libcuda.so.1")]);
  cpSync(join(root, "backends/cpu/lib/libtessera-cpu.so"), join(folder, "libtessera-cuda.so"));
  return folder;
}
