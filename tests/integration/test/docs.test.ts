/**
 * Every code block of the documentation: programs run, TypeScript and C compile, commands exist, those of a session ("console",
 * after "$ ") too. In a comment on the line before a block, "docs: cjs" says that it is CommonJS, "docs: run" that commands are
 * run too, "docs: not run: REASON" that it is left out.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { here, runNode } from "./run-node.js";

const root = join(here, "../..");

interface Block {
  readonly name: string;
  readonly language: string;
  readonly source: string;
  /** What the comment before it says. */
  readonly order: string;
}

function pages(): string[] {
  const folders = ["docs", "packages", "backends", "examples"];
  const below = folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(".md") && !/node_modules|\bnpm\b|CHANGELOG/.test(name))
      .map((name) => join(folder, name)),
  );
  return ["README.md", "README.zh-CN.md", ...below].sort();
}

function blocks(page: string): Block[] {
  const text = readFileSync(join(root, page), "utf8");
  const found = text.matchAll(/(?:<!-- docs: (.*?) -->\n)?^```(\w*)\n([\s\S]*?)^```$/gm);
  return [...found].map(([whole, order = "", language, source], n) => {
    const at = text.slice(0, text.indexOf(whole)).split("\n").length + (order ? 1 : 0);
    return { name: `${page}:${at}`, language: language!, source: source!, order, n };
  });
}

const all = pages().flatMap(blocks);
const of = (...languages: string[]) => all.filter(({ language }) => languages.includes(language));
const leave = (order: string, context: { skip(reason: string): void }) => {
  const reason = /^not run: (.*)$/.exec(order)?.[1];
  if (reason !== undefined) context.skip(`a block of the documentation isn't run: ${reason}`);
};

const folder = mkdtempSync(join(here, "node_modules", ".docs-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it("there is nothing in a language that nobody checks, or in none", () => {
  const known = ["js", "ts", "c", "sh", "console", "json"];
  const unchecked = all.filter(({ language, order }) => !known.includes(language) && !order.startsWith("not run: "));
  expect(unchecked.map(({ name, language }) => `${name} ${language || "(no language)"}`)).toEqual([]);
  // A fence that is written otherwise, indented or with tildes, would hide its block.
  const fences = (page: string) => readFileSync(join(root, page), "utf8").match(/^\s*(```|~~~)/gm)?.length ?? 0;
  expect(pages().filter((page) => fences(page) !== 2 * blocks(page).length)).toEqual([]);
  expect(all.length).toBeGreaterThan(20);
});

describe("JavaScript runs, and says nothing on stderr", () => {
  it.for(of("js"))("$name", ({ source, order }, context) => {
    leave(order, context);
    const { status, stderr } = runNode(source, order === "cjs" ? "cjs" : "mjs");
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  });
});

describe("TypeScript compiles", () => {
  const snippets = of("ts");
  let said = "";
  beforeAll(() => {
    const files = snippets.map(({ source, order }, n) => {
      const file = join(folder, `snippet-${n}.ts`);
      writeFileSync(file, order.startsWith("not run") ? "" : `${source}\nexport {};\n`);
      return file;
    });
    const options = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext"];
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    said = spawnSync(process.execPath, [tsc, ...options, ...files], { cwd: folder, encoding: "utf8" }).stdout;
  }, 120_000);
  it.for(snippets.map((block, n) => ({ ...block, n })))("$name", ({ n, order }, context) => {
    leave(order, context);
    expect(said.split("\n").filter((row) => row.includes(`snippet-${n}.ts`))).toEqual([]);
  });
});

const compiler = process.env.CC ?? "cc";
const include = join(root, "packages/core/include");

describe("C compiles", () => {
  it.for(of("c").map((block, n) => ({ ...block, n })))("$name", ({ source, order, n, name }, context) => {
    leave(order, context);
    const file = join(folder, `snippet-${n}.c`);
    const headers = '#include <dlfcn.h>\n#include <stdio.h>\n#include "tessera/tessera.h"\n';
    // Declarations as the header has them, whole programs, or statements.
    const whole = name.startsWith("docs/c-api.md") || source.includes("int main(");
    writeFileSync(file, headers + (whole ? source : `void snippet(void);\nvoid snippet(void) {\n${source}}\n`));
    const flags = ["-std=c11", "-Wall", "-Wno-unused", "-fsyntax-only", `-I${include}`];
    const { status, stderr } = spawnSync(compiler, [...flags, file], { encoding: "utf8" });
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  });
});

it.for(of("json"))("JSON is JSON: $name", ({ source }) => {
  expect(() => JSON.parse(source)).not.toThrow();
});

describe("commands exist", () => {
  const { scripts } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const help = spawnSync(process.execPath, [join(root, "packages/cli/bin/tessera.js"), "--help"], {
    encoding: "utf8",
  }).stdout;
  const commands = [...help.matchAll(/^ {2}(\w+)(?= .*\S)/gm)].map(([, name]) => name);

  function problems(source: string): string[] {
    const found: string[] = [];
    for (const row of source.replaceAll("\\\n", " ").split("\n")) {
      const command = row.replace(/\s#.*$/, "");
      const script = /^(?:npm run|pnpm) ([\w:-]+)/.exec(command)?.[1];
      if (script && !(script in scripts) && !["install", "add"].includes(script)) found.push(`no script ${script}`);
      const tessera = /\btessera (?!-)(\w+)/.exec(command)?.[1];
      if (tessera && !commands.includes(tessera)) found.push(`tessera has no command ${tessera}`);
      for (const [flag] of tessera ? command.matchAll(/--[a-z][a-z-]+/g) : []) {
        if (!helpOf(tessera!).includes(flag)) found.push(`tessera ${tessera} has no ${flag}`);
      }
      for (const [, file] of command.matchAll(/\bnode ((?:scripts|tests|examples|benchmarks)\/\S+)/g))
        if (!existsSync(join(root, file!))) found.push(`there is no ${file}`);
      for (const [, file] of command.matchAll(
        /(?:^|\s)((?:examples|docs|packages\/core\/include|backends\/\w+\/CMakeLists)\/\S*)/g,
      ))
        if (!existsSync(join(root, file!))) found.push(`there is no ${file}`);
    }
    return found;
  }

  const helps = new Map<string, string>();
  function helpOf(command: string): string {
    let text = helps.get(command);
    if (text === undefined) {
      const bin = join(root, "packages/cli/bin/tessera.js");
      text = spawnSync(process.execPath, [bin, command, "--help"], { encoding: "utf8" }).stdout;
      helps.set(command, text);
    }
    return text;
  }

  it.for(of("sh"))("$name", ({ source, order }, context) => {
    const syntax = spawnSync("bash", ["-n"], { input: source, encoding: "utf8" });
    expect(syntax.stderr).toBe("");
    expect(problems(source)).toEqual([]);
    if (order !== "run") return leave(order, context);
    mkdirSync(join(root, "out"), { recursive: true });
    const ended = spawnSync("bash", ["-e"], { input: source, cwd: root, encoding: "utf8" });
    expect(ended).toMatchObject({ status: 0, stderr: "" });
    expect(ended.stdout).not.toBe("");
  });

  it.for(of("console"))("session $name", ({ source }) => {
    const typed = [...source.matchAll(/^\$ (.*)$/gm)].map(([, command]) => command).join("\n");
    expect(typed).not.toBe("");
    expect(problems(typed)).toEqual([]);
  });
});

describe("troubleshooting", () => {
  const text = readFileSync(join(root, "docs/troubleshooting.md"), "utf8");
  const headings = [...text.matchAll(/^### ([a-zA-Z-_]+)/gm)].map(([, name]) => name);
  const union = (file: string, declared: string) => {
    const source = readFileSync(join(root, file), "utf8");
    const body = new RegExp(`${declared}([^;]*);`).exec(source)![1]!;
    const found = [...body.matchAll(/"([\w-]+)"/g)].map(([, one]) => one!);
    expect(found.length).toBeGreaterThan(1);
    return found;
  };
  /** What follows a heading, up to the next of its rank. */
  const section = (title: string) => text.split(/^## /m).find((part) => part.startsWith(`${title}\n`)) ?? "";
  it.each([
    ["Error codes", "packages/core/src/error.ts", "export type TesseraErrorCode ="],
    ["Error codes of @tessera/ggml", "packages/ggml/src/index.ts", "readonly code:"],
  ])("has an entry for each code, under %s", (title, file, declared) => {
    for (const code of union(file, declared)) expect(section(title)).toMatch(new RegExp(`^### ${code}\\b`, "m"));
  });
  it("has an entry for each warning", () => {
    const sources = ["packages", "backends"].flatMap((group) =>
      readdirSync(join(root, group)).flatMap((name) => {
        const src = join(root, group, name, "src");
        const files = existsSync(src) ? readdirSync(src, { recursive: true, encoding: "utf8" }) : [];
        return files.filter((file) => file.endsWith(".ts")).map((file) => readFileSync(join(src, file), "utf8"));
      }),
    );
    const calls = sources.flatMap((source) => [...source.matchAll(/emitWarning\([\s\S]*?\);/g)].map(([call]) => call));
    const codes = calls.map((call) => /code: "(\w+)"/.exec(call)?.[1]);
    expect(codes.length).toBeGreaterThan(2);
    for (const code of codes) expect(section("Warnings")).toContain(`\n### ${code}\n`);
  });
  it("has an entry for each state of a back end", () => {
    expect(headings).toEqual(expect.arrayContaining(union("packages/core/src/backend.ts", "export type ProbeState =")));
  });
});

it("the C example is warning-free and right, with plain cc", () => {
  const source = join(root, "examples/c/attention.c");
  const program = join(folder, "attention");
  const flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", `-I${include}`, source, "-o", program, "-ldl", "-lm"];
  const built = spawnSync(compiler, flags, { encoding: "utf8" });
  expect(built).toMatchObject({ status: 0, stderr: "" });
  const ran = spawnSync(program, [join(root, "backends/cpu/lib/libtessera-cpu.so")], { encoding: "utf8" });
  expect(ran).toMatchObject({ status: 0, stderr: "" });
  expect(ran.stdout).toMatch(/largest error against float64: \d\.\de-\d\d/);
  expect(spawnSync(program, ["/nowhere.so"], { encoding: "utf8" }).stderr).toContain("/nowhere.so");
  expect(spawnSync(program, [], { encoding: "utf8" }).status).toBe(2);
  expect(relative(root, source)).toBe("examples/c/attention.c");
});
