import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { publint } from "publint";
import { formatMessage } from "publint/utils";
import { afterAll, describe, expect, test } from "vitest";
import { type Installed, packAndInstall, root } from "../src/pack.js";

// Before the tests are known: there is one set of them for each package that is published.
const installed: Installed = packAndInstall();
const names = installed.packed.map(({ name }) => name);
afterAll(() => installed.remove());

const node = (...args: string[]) =>
  execFileSync(process.execPath, args, { cwd: installed.folder, encoding: "utf8" }).trim();
const packageOf = (name: string) => installed.packed.find((one) => one.name === name)!;
const manifest = (name: string) => packageOf(name).manifest;

test("all that is published is packed", () => {
  const inWorkspace = ["packages", "backends"]
    .flatMap((group) => readdirSync(join(root, group)).map((folder) => join(root, group, folder, "package.json")))
    .filter((file) => existsSync(file))
    .map((file) => JSON.parse(readFileSync(file, "utf8")) as { name: string; private?: boolean })
    .filter((one) => !one.private)
    .map(({ name }) => name);
  expect(names).toEqual(expect.arrayContaining([...inWorkspace, "@tessera/core", "@tessera/webgpu", "@tessera/bench"]));
});

describe.each(names)("%s", (name) => {
  test("carries what runs, and neither sources nor tests", () => {
    const { files } = packageOf(name);
    expect(files).toContain("LICENSE");
    const strays = files.filter((file) =>
      /(^|\/)(src|test|tests|node_modules|\.turbo)\/|tsconfig|\.config\.|\.log$/.test(file),
    );
    expect(strays).toEqual([]);
  });

  test("runs no script at install and has no workspace: version left", () => {
    const { scripts = {}, dependencies = {}, optionalDependencies = {} } = manifest(name);
    const hooks = ["preinstall", "install", "postinstall", "prepare"].filter((hook) => hook in scripts);
    expect(hooks).toEqual([]);
    for (const version of Object.values({ ...dependencies, ...optionalDependencies }))
      expect(version).toMatch(/^[\^~]?\d+\.\d+\.\d+/);
  });

  test("asks for its own kind in exactly its own version", () => {
    const { version, dependencies = {}, optionalDependencies = {} } = manifest(name);
    for (const [other, wanted] of Object.entries({ ...dependencies, ...optionalDependencies }))
      if (other.startsWith("@tessera/")) expect([other, wanted]).toEqual([other, version]);
  });

  test("publint has nothing to say", async () => {
    const { messages, pkg } = await publint({
      pkgDir: join(installed.folder, "node_modules", name),
      pack: false,
      strict: true,
    });
    expect(messages.map((message) => formatMessage(message, pkg))).toEqual([]);
  });
});

// Those with types. node10 knows no exports map; nothing that old can run these packages.
const typed = installed.packed
  .filter(({ manifest }) => JSON.stringify(manifest.exports ?? {}).includes('"types"'))
  .map(({ name }) => [name, name === "@tessera/bench" ? "esm-only" : "node16"] as const);

test("packages with types are known as such", () => {
  expect(typed.map(([name]) => name)).toEqual(expect.arrayContaining(["@tessera/core", "@tessera/webgpu"]));
});

test.each(typed)("types of %s resolve: %s", (name, profile) => {
  const attw = join(root, "tests/packaging/node_modules/@arethetypeswrong/cli/dist/index.js");
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [attw, packageOf(name).tarball, "--profile", profile, "--format", "ascii"],
    { encoding: "utf8", cwd: installed.folder },
  );
  expect(status, stdout + stderr).toBe(0);
});

test.each(["program.mts", "program.cts"])("types of @tessera/core need no lib, no @types/node: %s", (name) => {
  const program = join(installed.folder, name);
  const lines = [
    'import { openEngine, type Engine } from "@tessera/core";',
    "export const close = async (engine: Engine) => { engine[Symbol.dispose](); await engine[Symbol.asyncDispose](); };",
    'export const opened = openEngine({ backend: "reference" }).then(close);',
  ];
  writeFileSync(program, lines.join("\n"));
  const tsc = join(root, "tests/packaging/node_modules/typescript/bin/tsc");
  const options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext"];
  const { status, stdout } = spawnSync(process.execPath, [tsc, ...options, program], {
    encoding: "utf8",
    cwd: installed.folder,
  });
  expect(status, stdout).toBe(0);
});

describe("the packages as installed", () => {
  const script = "const names = Object.keys(core).sort().join(); console.log(names)";

  test("ESM and CommonJS offer the same names", () => {
    const esm = node("--input-type=module", "-e", `import * as core from "@tessera/core"; ${script}`);
    const cjs = node("-e", `const core = require("@tessera/core"); ${script}`);
    expect(esm).toBe(cjs);
    expect(esm.split(",")).toEqual(expect.arrayContaining(["attention", "openEngine", "oracle", "probe"]));
  });

  test("the CPU back end is found beside core", () => {
    const library = node("-p", `require("@tessera/cpu").library`);
    const { platformPackage } = createRequire(join(installed.folder, "x"))("@tessera/cpu");
    expect(library).toBe(join(installed.folder, "node_modules", platformPackage, "libtessera-cpu.so"));
    expect(existsSync(library)).toBe(true);
    const engine = `const engine = await openEngine({ backend: "cpu" }); console.log(engine.backend); engine.dispose()`;
    expect(node("--input-type=module", "-e", `import { openEngine } from "@tessera/core"; ${engine}`)).toBe("cpu");
  });

  test("the tessera command runs", () => {
    const bin = join(installed.folder, "node_modules/@tessera/cli", manifest("@tessera/cli").bin!.tessera!);
    expect(JSON.parse(node(bin, "devices", "--json"))).toEqual(expect.anything());
    expect(node(bin, "--version")).toBe(manifest("@tessera/cli").version);
  });

  test("a C program compiles against the header that core ships", (context) => {
    const compiler = process.env.CC ?? "cc";
    if (spawnSync(compiler, ["--version"]).status !== 0) context.skip(`no C compiler (${compiler})`);
    const include = node("-p", `require("@tessera/core/include").include`);
    const source = join(installed.folder, "program.c");
    writeFileSync(source, '#include "tessera/tessera.h"\nint main(void) { return TSR_ABI_VERSION == 1u ? 0 : 1; }\n');
    const program = join(installed.folder, "program");
    execFileSync(compiler, [
      "-std=c11",
      "-Wall",
      "-Wextra",
      "-Wpedantic",
      "-Werror",
      `-I${include}`,
      "-o",
      program,
      source,
    ]);
    expect(spawnSync(program).status).toBe(0);
  });
});
