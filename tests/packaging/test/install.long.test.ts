/** What users do: install from a registry into an empty project, and run. */
import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Packed, packAll, root } from "../src/pack.js";
import { answer, bundled, cjs, ends, esm, typed, workers } from "../src/programs.js";
import { type Manager, Project } from "../src/project.js";
import { type Registry, startRegistry } from "../src/registry.js";
import { installTools, nodes, tool } from "../src/tools.js";

const hindrance = process.platform === "linux" ? installTools() : "install tests are written for Linux";
const skip = (context: { skip(reason: string): void }) => {
  if (hindrance !== undefined) context.skip(hindrance);
};

const folder = mkdtempSync(join(tmpdir(), "tessera-install-"));
chmodSync(folder, 0o755); // for the test as another user
// Everybody's home is a folder like this one.
const home = join(folder, "Jürgens Projekte, 注意");
let registry: Registry;
let packed: Packed[];

beforeAll(async () => {
  if (hindrance !== undefined) return;
  packed = packAll(folder, { here: false });
  registry = await startRegistry(join(folder, "registry"), packed);
}, 300_000);
afterAll(() => {
  registry?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const project = (name: string) => new Project(join(home, name), registry.url);
const all = ["@tessera/core", "@tessera/cli"];
const platform = () => packed.find(({ name }) => name.startsWith(`@tessera/cpu-linux-${process.arch}-gnu`))!.name;

/** Which packages for a platform a project has. */
const platformPackages = (at: Project) =>
  readdirSync(join(at.folder, "node_modules/@tessera"))
    .filter((name) => /-(linux|darwin|win32)-/.test(name))
    .map((name) => `@tessera/${name}`)
    .sort();

function expectAnswer(ended: ReturnType<Project["node"]>, backend = "cpu"): void {
  expect(ended).toEqual({ status: 0, signal: null, stdout: answer(backend), stderr: "" });
}

let npmProject: Project | undefined;

/** The project that most tests share. */
function byNpm(): Project {
  if (npmProject === undefined) {
    npmProject = project("npm");
    npmProject.install("npm", all);
  }
  return npmProject;
}

const managers: Manager[] = ["npm", "pnpm", "yarn 1", "yarn 4", "yarn 4, Plug'n'Play"];

describe.each(managers)("%s", (manager) => {
  test("installs, and ESM and CommonJS run on the CPU back end", (context) => {
    skip(context);
    const at = manager === "npm" ? byNpm() : project(manager.replaceAll(/\W+/g, "-"));
    if (manager !== "npm") at.install(manager, all);
    expectAnswer(at.program(manager, [at.write("program.mjs", esm)]));
    expectAnswer(at.program(manager, [at.write("program.cjs", cjs)]));
    if (manager === "npm") {
      expect(platformPackages(at)).toEqual([platform().replace("cpu-", "core-"), platform()]);
      expect(at.run(join(at.folder, "node_modules/.bin/tessera"), ["doctor"]).stdout).toMatch(
        /Verdict: good\. Attention runs natively on cpu/,
      );
    }
    if (manager !== "npm") at.remove();
  });
});

describe("in a project that npm installed", () => {
  let at: Project;
  beforeAll(() => {
    if (hindrance === undefined) at = byNpm();
  });

  test.for(nodes)(
    "Node %s: ESM, CommonJS, and 50 workers that load, compute and are terminated",
    ([, node], context) => {
      skip(context);
      expectAnswer(at.run(node, [at.write("program.mjs", esm)]));
      expectAnswer(at.run(node, [at.write("program.cjs", cjs)]));
      expect(at.run(node, [at.write("workers.mjs", workers)])).toEqual({
        status: 0,
        signal: null,
        stdout: "50\n",
        stderr: "",
      });
    },
  );

  test.for(
    nodes.flatMap(([version, node]) => ends.map(([end, program, code]) => ({ version, node, end, program, code }))),
  )("Node $version: $end in the middle of work keeps the exit code $code", ({ node, program, code }, context) => {
    skip(context);
    const { status, signal, stderr } = at.run(node, [at.write("ends.mjs", program)]);
    expect({ status, signal }).toEqual({ status: code, signal: null });
    if (code !== 1) expect(stderr).toBe("");
    else expect(stderr).toContain("on purpose");
  });

  test.for([
    ["node16", "node16", "program.mts"],
    ["node16", "node16", "program.cts"],
    ["nodenext", "nodenext", "program.ts"],
    ["bundler", "esnext", "program.ts"],
  ])("TypeScript, moduleResolution %s, module %s: %s", ([resolution, module, name], context) => {
    skip(context);
    at.write(name!, typed);
    const compilerOptions = { noEmit: true, strict: true, types: [], target: "es2022" };
    const options = { compilerOptions: { ...compilerOptions, moduleResolution: resolution, module }, files: [name] };
    const config = at.write(`tsconfig.${resolution}.json`, JSON.stringify(options));
    const ended = at.node([join(root, "tests/packaging/node_modules/typescript/bin/tsc"), "-p", config]);
    expect(ended).toEqual({ status: 0, signal: null, stdout: "", stderr: "" });
  });

  test.for([
    ["esm", "out/bundle.mjs"],
    ["cjs", "out/bundle.cjs"],
  ])("bundled by esbuild as %s: the native files are found beside it", ([format, out], context) => {
    skip(context);
    const program = at.write("bundled.mjs", bundled);
    const flags = ["--bundle", "--minify", "--platform=node", `--format=${format}`, `--outfile=${out}`];
    const built = at.run(tool(".bin/esbuild"), [program, ...flags, "--log-level=error"]);
    expect(built).toMatchObject({ status: 0, stderr: "" });
    expectAnswer(at.node([join(at.folder, out!)]));
  });

  test("read-only node_modules, as a user who owns nothing", (context) => {
    skip(context);
    execFileSync("chmod", ["-R", "a-w,a+rX", join(at.folder, "node_modules")]);
    try {
      const program = at.write("program.mjs", esm);
      if (process.getuid?.() !== 0) return expectAnswer(at.node([program]));
      // root may write anywhere.
      const nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", process.execPath, program];
      const ended = at.run("setpriv", nobody, { HOME: "/nonexistent" });
      if (ended.status === null) context.skip("setpriv (util-linux) isn't here");
      expectAnswer(ended);
    } finally {
      execFileSync("chmod", ["-R", "u+w", join(at.folder, "node_modules")]);
    }
  });
});

test("npm installs the other packages, and each is imported with the library that was built for it", (context) => {
  skip(context);
  const at = project("others");
  const parts = ["cuda", "hip", "ggml", "webgpu", "bench"];
  at.install(
    "npm",
    parts.map((part) => `@tessera/${part}`),
  );
  const source = `
    import { openEngine } from "@tessera/core";
    import { readFileSync } from "node:fs";
    import * as cuda from "@tessera/cuda";
    import * as hip from "@tessera/hip";
    import * as ggml from "@tessera/ggml";
    import { webgpu } from "@tessera/webgpu";
    import { renderReport } from "@tessera/bench";
    console.log(typeof openEngine, typeof webgpu, typeof renderReport, typeof ggml.enableTessera);
    // Read whole, so that a link into nowhere is none.
    for (const { library } of [cuda, hip, ggml]) console.log(library && readFileSync(library).length > 0 ? library : "none");`;
  const { stdout, stderr, status } = at.node([at.write("program.mjs", source)]);
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  const libraries = parts.slice(0, 3).map((part) => {
    const built = packed.find(({ name }) => name === `@tessera/${part}-linux-${process.arch}-gnu`);
    const file = built?.files.find((path) => path.endsWith(".so"));
    return file ? join(at.folder, "node_modules", built!.name, file) : "none";
  });
  expect(stdout.trim().split("\n")).toEqual(["function function function function", ...libraries]);
  at.remove();
});

const insist = `import { openEngine } from "@tessera/core";
await openEngine({ backend: "cpu" }).catch((error) => console.log(error.code, error.message));`;

describe("without the platform's package", () => {
  test("--omit=optional: the reference works, and the CPU's error says how to get it", (context) => {
    skip(context);
    const at = project("omit");
    at.install("npm", ["@tessera/core", "@tessera/cpu"], "--omit=optional");
    expect(existsSync(join(at.folder, "node_modules", platform()))).toBe(false);
    expectAnswer(at.node([at.write("program.mjs", esm)]), "reference");
    const { stdout, stderr } = at.node([at.write("insist.mjs", insist)]);
    expect(stderr).toBe("");
    expect(stdout).toMatch(/^backend-missing cpu can't be used \(package-missing\)/);
    expect(stdout).toContain(`is installed without ${platform()}`);
    expect(stdout).toContain(`1. run \`npm install --include=optional @tessera/cpu@`);
    at.install("npm", ["@tessera/cpu"], "--include=optional");
    expectAnswer(at.node([join(at.folder, "program.mjs")]));
    at.remove();
  });

  test("installed for another platform (a lock file or node_modules from elsewhere)", (context) => {
    skip(context);
    const at = project("foreign");
    at.install("npm", all, "--os=darwin", "--cpu=arm64");
    expect(platformPackages(at)).toEqual([]);
    expectAnswer(at.node([at.write("program.mjs", esm)]), "reference");
    expect(at.node([at.write("insist.mjs", insist)]).stdout).toContain(`is installed without ${platform()}`);
    const doctor = at.run(join(at.folder, "node_modules/.bin/tessera"), ["doctor"]);
    expect(doctor.stdout).toMatch(/fix 1 +run `npm install --include=optional @tessera\/cpu@/);
    at.remove();
  });

  test("npm refuses a platform package on a machine that isn't for it", (context) => {
    skip(context);
    const other = packed.find(({ name }) => name.includes(process.arch === "x64" ? "-arm64-" : "-x64-"));
    if (!other) context.skip("no package for another architecture was built");
    const at = project("refused");
    expect(() => at.install("npm", [other!.name])).toThrow(/EBADPLATFORM/);
    at.remove();
  });
});

test("on Arm: the cross-built addon and back end, in a Node for it under qemu", (context) => {
  skip(context);
  if (process.arch !== "x64") context.skip("this machine is for Arm itself, or for neither");
  const emulator = ["qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"];
  if (spawnSync(emulator[0]!, ["--version"]).status !== 0) context.skip("needs qemu-aarch64-static");
  const names = ["@tessera/core", "@tessera/core-linux-arm64-gnu", "@tessera/cpu", "@tessera/cpu-linux-arm64-gnu"];
  const tarballs = names.map((name) => packed.find((one) => one.name === name)?.tarball);
  if (tarballs.includes(undefined)) context.skip("linux-arm64-gnu wasn't built (scripts/build-native.mjs cross)");
  const node = foreignNode("linux-arm64@22.23.5", "node");
  if (node === undefined) context.skip("Node for Arm can't be had from the registry");

  const at = project("arm");
  unpack(at, names, tarballs as string[]);
  // The child that probes is started by the path of Node, which this machine runs by the emulator only.
  const started = at.write("node.sh", `#!/bin/sh\nexec ${emulator.join(" ")} "${node}" "$@"\n`);
  chmodSync(started, 0o755);
  const program = at.write("program.mjs", `process.execPath = ${JSON.stringify(started)};\n${esm}`);
  expectAnswer(at.run(started, [program]));
  const where = at.write("where.cjs", 'console.log(process.arch, require("@tessera/cpu").platformPackage)');
  expect(at.run(started, [where]).stdout).toBe("arm64 @tessera/cpu-linux-arm64-gnu\n");
  at.remove();
});

test("on Windows: the cross-built addon and back end, in a Node for it under Wine", (context) => {
  skip(context);
  const wine = "/usr/lib/wine/wine64";
  if (!existsSync(wine)) context.skip(`needs ${wine} (Debian's wine64)`);
  const names = ["@tessera/core", "@tessera/core-win32-x64", "@tessera/cpu", "@tessera/cpu-win32-x64"];
  const tarballs = names.map((name) => packed.find((one) => one.name === name)?.tarball);
  if (tarballs.includes(undefined)) context.skip("win32-x64 wasn't built (scripts/build-native.mjs cross)");
  const node = foreignNode("win-x64@20.20.2", "node.exe");
  if (node === undefined) return context.skip("Node for Windows can't be had from the registry");

  const at = project("windows");
  unpack(at, names, tarballs as string[]);
  const settings = { WINEDEBUG: "-all", WINEPREFIX: join(folder, "wine"), NODE_SKIP_PLATFORM_CHECK: "1" };
  /** What it prints goes through a file: the console that Wine makes of a pipe is none for Node. */
  const run = (program: string) => {
    const file = join(at.folder, "printed.txt");
    const to = openSync(file, "w");
    spawnSync(wine, [node, windowsPath(program)], { env: { ...process.env, ...settings }, stdio: ["ignore", to, to] });
    closeSync(to);
    return readFileSync(file, "utf8");
  };
  run(at.write("nothing.cjs", "")); // Wine makes its folder, and talks about it
  expect(run(at.write("program.mjs", esm))).toBe(answer("cpu"));
  const where = 'console.log(process.platform, require("@tessera/cpu").platformPackage)';
  expect(run(at.write("where.cjs", where))).toBe("win32 @tessera/cpu-win32-x64\n");
  // Its own words for a path that is none, a file that isn't there, and one that is no library.
  const library = at.write("no-library.so", "hello\n");
  const paths = ["cpu.so", "\\cpu.so", "C:\\nowhere\\cpu.so", windowsPath(library)];
  const bad = `const { openEngine } = require("@tessera/core");
    (async () => { for (const library of ${JSON.stringify(paths)})
      await openEngine({ library }).catch((error) => console.log(error.code, error.message.split("\\n")[0])); })();`;
  const said = run(at.write("bad.cjs", bad)).trim().split("\n");
  expect(said[0]).toMatch(/^backend-missing .*cpu\.so: is not an absolute path/);
  expect(said[1]).toMatch(/^backend-missing .*\\cpu\.so: does not exist/);
  expect(said[2]).toMatch(/^backend-missing .*C:\\nowhere\\cpu\.so: does not exist/);
  expect(said[3]).toMatch(/^backend-missing .*no-library\.so can't be loaded: .*\(Windows error \d+\)/);
  spawnSync("/usr/lib/wine/wineserver", ["-k"], { env: { ...process.env, ...settings } });
  at.remove();
});

/** Wine shows the whole file system as drive Z. */
const windowsPath = (path: string) => `Z:${path.replaceAll("/", "\\")}`;

/** Unpacks tarballs as npm would on their platform, which this machine isn't. */
function unpack(at: Project, names: readonly string[], tarballs: readonly string[]): void {
  names.forEach((name, n) => {
    const target = join(at.folder, "node_modules", name);
    mkdirSync(target, { recursive: true });
    execFileSync("tar", ["-xzf", tarballs[n]!, "-C", target, "--strip-components=1"]);
  });
}

/** A Node for another platform ("win-x64@20.20.2"). Unpacked by hand: npm installs it nowhere else. */
function foreignNode(platform: string, file: string): string | undefined {
  const target = join(folder, `node-${platform}`);
  mkdirSync(target, { recursive: true });
  const { status, stdout } = spawnSync("npm", ["pack", `node-${platform}`, "--silent"], {
    cwd: target,
    encoding: "utf8",
  });
  if (status !== 0) return undefined;
  execFileSync("tar", ["-xzf", stdout.trim(), `package/bin/${file}`], { cwd: target });
  return join(target, "package/bin", file);
}
