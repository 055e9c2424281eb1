/** What the tests of the addon stand on: mock back ends, scripts in processes of their own, small problems. */
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import type { AttentionDesc, TensorDesc } from "../../src/backend.js";
import { loadBackend } from "../../src/backends.js";
import type { NativeBackend } from "../../src/native/native-backend.js";
import { packageRoot } from "../../src/package-root.js";

const root = fileURLToPath(packageRoot);
const cache = join(root, ".cache");
const mockFolder = fileURLToPath(new URL("mock/", import.meta.url));

/** Writes where others may be reading. */
function replace(file: string, write: (temporary: string) => void): void {
  const temporary = `${file}.${process.pid}`;
  mkdirSync(dirname(file), { recursive: true });
  write(temporary);
  renameSync(temporary, file);
}

/** Path of the mock back end, compiled with these -D flags. */
export function mock(...flags: string[]): string {
  const sources = readdirSync(mockFolder).sort();
  const hash = createHash("sha256").update(flags.join(" "));
  for (const source of [...sources.map((name) => join(mockFolder, name)), join(root, "include/tessera/tessera.h")])
    hash.update(readFileSync(source));
  const file = join(cache, "mock", `${hash.digest("hex").slice(0, 16)}.so`);
  if (existsSync(file)) return file;
  replace(file, (temporary) => {
    const compiler = process.env.CC ?? "cc";
    const args = [
      ...flags,
      "-std=c11",
      "-O1",
      "-g",
      "-shared",
      "-fPIC",
      "-fvisibility=hidden",
      "-pthread",
      `-I${join(root, "include")}`,
    ];
    const files = sources.filter((name) => name.endsWith(".c")).map((name) => join(mockFolder, name));
    const { status, stderr, error } = spawnSync(compiler, [...args, ...files, "-o", temporary], { encoding: "utf8" });
    if (status !== 0) throw new Error(`the mock back end doesn't compile: ${error?.message ?? stderr}`);
  });
  return file;
}

/** A file of this content, for a loader to refuse. */
export function scratchFile(name: string, content: string): string {
  const file = join(cache, "files", name);
  replace(file, (temporary) => writeFileSync(temporary, content));
  return file;
}

function transpile(source: string, target: string): void {
  if (existsSync(target) && statSync(target).mtimeMs > statSync(source).mtimeMs) return;
  const { outputText } = ts.transpileModule(readFileSync(source, "utf8"), {
    compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022, verbatimModuleSyntax: true },
  });
  replace(target, (temporary) => writeFileSync(temporary, outputText));
}

/** The sources as plain JavaScript, at the same depth in the package, for scripts that run in a process of their own. */
export function compiled(): string {
  for (const entry of readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })) {
    if (entry.endsWith(".ts")) transpile(join(root, "src", entry), join(cache, entry.replace(/\.ts$/, ".js")));
  }
  return cache;
}

export interface ScriptEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly milliseconds: number;
}

/** Runs scripts/NAME.mjs in a Node of its own; its arguments are the folder of the JavaScript, then `args`. */
export function runScript(name: string, args: string[] = [], nodeArgs: string[] = []): Promise<ScriptEnd> {
  const script = fileURLToPath(new URL(`scripts/${name}.mjs`, import.meta.url));
  const started = performance.now();
  const child = spawn(process.execPath, [...nodeArgs, script, compiled(), ...args], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const said = { stdout: "", stderr: "" };
  child.stdout.setEncoding("utf8").on("data", (text) => {
    said.stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text) => {
    said.stderr += text;
  });
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) => {
      resolve({ code, signal, ...said, milliseconds: performance.now() - started });
    });
  });
}

export async function mockBackend(...flags: string[]): Promise<NativeBackend> {
  return (await loadBackend({ library: mock(...flags) })) as NativeBackend;
}

export function tensor(data: TensorDesc["data"], shape: number[], byteOffset = 0): TensorDesc {
  const strides = shape.map((_, d) => shape.slice(d + 1).reduce((a, b) => a * b, 1));
  return { data, byteOffset, dtype: "f32", shape, strides };
}

/** A problem over host arrays that is too large to be run on the event loop. */
export function large(kernel?: string): AttentionDesc & { readonly result: Float32Array } {
  const shape = [1, 64, 2, 8];
  const input = () => tensor(new Float32Array(64 * 2 * 8).fill(1), shape);
  const result = new Float32Array(64 * 2 * 8);
  return { q: input(), k: input(), v: input(), out: tensor(result, shape), kernel, result };
}

/** A problem that is small enough to be run on the event loop. */
export function small(kernel?: string): AttentionDesc & { readonly result: Float32Array } {
  const shape = [1, 1, 1, 4];
  const input = () => tensor(new Float32Array(4).fill(1), shape);
  const result = new Float32Array(4);
  return { q: input(), k: input(), v: input(), out: tensor(result, shape), kernel, result };
}

/** What the mock counts: contexts, buffers, graphs, events alive; calls made. */
export function counts(context: { kernels(): readonly { summary: string }[] }): Record<string, number> {
  const { summary } = context.kernels()[0]!;
  return Object.fromEntries(summary.split(" ").map((pair) => [pair.split("=")[0], Number(pair.split("=")[1])]));
}

export const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
