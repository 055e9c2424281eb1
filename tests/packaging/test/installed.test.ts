/** An installation that is good, and some that aren't: what importing costs, and what each kind of damage is told as. */
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { type Installed, packAndInstall } from "../src/pack.js";
import { answer, esm } from "../src/programs.js";

const installed: Installed = packAndInstall();
afterAll(() => installed.remove());

/** Copies of the installation, for tests that break it. */
function copy(name: string): string {
  const folder = join(installed.folder, name);
  cpSync(join(installed.folder, "node_modules"), join(folder, "node_modules"), { recursive: true });
  return folder;
}

function run(folder: string, source: string, env: NodeJS.ProcessEnv = {}) {
  writeFileSync(join(folder, "program.mjs"), source);
  const { TESSERA_BACKEND: _, TESSERA_BACKEND_PATH: __, NODE_PATH: ___, ...clean } = process.env;
  return spawnSync(process.execPath, ["program.mjs"], { cwd: folder, encoding: "utf8", env: { ...clean, ...env } });
}

const insist = `import { openEngine } from "@tessera/core";
await openEngine({ backend: "cpu" }).catch((error) => console.log(error.code, error.message));`;

// What importing costs is a figure of benchmarks/import.mjs; here is what it must not do, which costs the same everywhere.
describe("importing", () => {
  test.each(["@tessera/core", "@tessera/cpu", "@tessera/cuda", "@tessera/hip"])(
    "%s loads no native code, little code, and none of Node's modules that are slow to load",
    (name) => {
      const coverage = mkdtempSync(join(installed.folder, "coverage-")); // V8 lists the files that it compiled
      const source = `
        import { readFileSync } from "node:fs";
        await import("${name}");
        const linux = process.platform === "linux";
        const native = linux ? readFileSync("/proc/self/maps", "utf8").match(/\\S*tessera[^/\\n]*\\.(so|node)/g) : null;
        const slow = ["crypto", "child_process", "worker_threads", "http"];
        const builtin = slow.filter((name) => process.moduleLoadList.includes("NativeModule " + name));
        console.log(JSON.stringify({ native, builtin }));`;
      const { stdout } = run(installed.folder, source, { NODE_V8_COVERAGE: coverage });
      expect(JSON.parse(stdout)).toEqual({ native: null, builtin: [] });
      const compiled = readdirSync(coverage)
        .flatMap((file) => JSON.parse(readFileSync(join(coverage, file), "utf8")).result as { url: string }[])
        .filter(({ url }) => url.includes(`/node_modules/${name}/`))
        .map(({ url }) => readFileSync(new URL(url)).length);
      expect(compiled.length).toBeGreaterThan(0);
      expect(compiled.reduce((sum, bytes) => sum + bytes, 0)).toBeLessThanOrEqual(250_000);
    },
  );
});

test("the answer, to begin with", () => {
  expect(run(installed.folder, esm)).toMatchObject({ status: 0, stdout: answer("cpu"), stderr: "" });
});

describe("a library that isn't what was published", () => {
  const library = (folder: string) => {
    const platform = readdirSync(join(folder, "node_modules/@tessera")).find((name) => name.startsWith("cpu-"))!;
    return join(folder, "node_modules/@tessera", platform, "libtessera-cpu.so");
  };

  test.each([
    [
      "truncated",
      (bytes: Buffer) => bytes.subarray(0, bytes.length >> 1),
      /is damaged: it has \d+ bytes, \d+ were published/,
    ],
    [
      "tampered with",
      (bytes: Buffer) => {
        bytes[bytes.length >> 1]! ^= 1;
        return bytes;
      },
      /is damaged or was changed: its SHA-256 is [0-9a-f]{64}, [0-9a-f]{64} was published/,
    ],
    ["empty", () => Buffer.alloc(0), /is damaged: it has 0 bytes/],
    ["not a library", (bytes: Buffer) => Buffer.alloc(bytes.length, "x"), /is damaged or was changed/],
  ])("%s", (name, damage, words) => {
    const folder = copy(name.replaceAll(" ", "-"));
    writeFileSync(library(folder), damage(readFileSync(library(folder))));
    const { stdout, stderr, status } = run(folder, insist);
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).toMatch(/^backend-missing cpu can't be used \(load-failed\)/);
    expect(stdout).toMatch(words);
    expect(stdout).toContain("  1. delete node_modules and run `npm install` again");
    // "auto" does what it can, and says why.
    expect(run(folder, esm).stdout).toBe(answer("reference"));
  });

  test("the addon too", () => {
    const folder = copy("addon");
    const platform = readdirSync(join(folder, "node_modules/@tessera")).find((name) => name.startsWith("core-"))!;
    const file = join(folder, "node_modules/@tessera", platform, "tessera.node");
    const bytes = readFileSync(file);
    bytes[bytes.length >> 1]! ^= 1;
    writeFileSync(file, bytes);
    const { stdout } = run(folder, insist);
    expect(stdout).toMatch(/tessera\.node: is damaged or was changed/);
    expect(stdout).toMatch(/1\. delete node_modules and run `npm install` again/); // which puts back what npm believes to be there
  });
});

test("a back end of another version beside core", () => {
  const folder = copy("another-version");
  const manifest = join(folder, "node_modules/@tessera/cpu/package.json");
  const own = JSON.parse(readFileSync(manifest, "utf8")).version;
  writeFileSync(manifest, JSON.stringify({ ...JSON.parse(readFileSync(manifest, "utf8")), version: "0.0.0-other" }));
  const { stdout } = run(folder, insist);
  expect(stdout).toMatch(/^abi-mismatch cpu can't be used \(version-mismatch\)/);
  expect(stdout).toContain(`is there as @tessera/cpu 0.0.0-other, beside @tessera/core ${own}`);
  expect(stdout).toContain(`  1. run \`npm install @tessera/core@${own} @tessera/cpu@${own}\``);
});

test("an addon of another version beside core", () => {
  const folder = copy("another-addon");
  const scope = join(folder, "node_modules/@tessera");
  const name = readdirSync(scope).find((one) => one.startsWith("core-"))!;
  const manifest = join(scope, name, "package.json");
  const { version, ...rest } = JSON.parse(readFileSync(manifest, "utf8"));
  writeFileSync(manifest, JSON.stringify({ ...rest, version: "0.0.0-other" }));
  const { stdout } = run(folder, insist);
  expect(stdout).toMatch(/^abi-mismatch cpu can't be used/);
  expect(stdout).toContain(`is there as @tessera/${name} 0.0.0-other, beside @tessera/core ${version}`);
  expect(stdout).toContain(`  1. run \`npm install --include=optional @tessera/core@${version}\``);
  expect(run(folder, esm).stdout).toBe(answer("reference"));
});

test("two copies of core in one process: a warning, and words where they meet", () => {
  const folder = copy("two-copies");
  cpSync(join(folder, "node_modules/@tessera"), join(folder, "inner/node_modules/@tessera"), { recursive: true });
  writeFileSync(join(folder, "inner/index.mjs"), 'export * from "@tessera/core";\n');
  const { stdout, stderr, status } = run(
    folder,
    `
    import { openEngine } from "@tessera/core";
    import * as other from "./inner/index.mjs";
    const mine = await openEngine({ backend: "cpu" });
    const theirs = await other.openEngine({ backend: "cpu" });
    const shape = [1, 2, 1, 2];
    const x = theirs.tensor(new Float32Array(4), { shape });
    await mine.attention({ q: x, k: x, v: x }).catch((error) => console.log(error.code, error.message));
    const cache = theirs.kvCache({ batch: 1, kvHeads: 1, headDim: 2, capacity: 4, dtype: "f32" });
    const q = mine.tensor(new Float32Array(2), { shape: [1, 1, 1, 2] });
    await mine.decode({ q, cache }).catch((error) => console.log(error.code, error.message));
    mine.dispose();
    theirs.dispose();`,
  );
  expect(status).toBe(0);
  expect(stderr).toMatch(
    /\[TESSERA_TWO_COPIES\] TesseraWarning: There are 2 copies of @tessera\/core in this process: /,
  );
  expect(stderr).toContain("npm dedupe");
  expect(stdout).toMatch(/^invalid-argument q is a tensor of another copy of this package, @tessera\/core .*inner/);
  expect(stdout).toMatch(/^invalid-argument cache is a cache of another copy of this package, @tessera\/core .*inner/m);
});

describe.skipIf(process.platform !== "linux")("LD_LIBRARY_PATH with a foreign library of a GPU vendor", () => {
  const vendor = join(installed.folder, "vendor");
  const doctor = () => {
    const bin = join(installed.folder, "node_modules/@tessera/cli/bin/tessera.js");
    const { stdout } = spawnSync(process.execPath, [bin, "doctor"], {
      cwd: installed.folder,
      encoding: "utf8",
      env: { ...process.env, LD_LIBRARY_PATH: vendor },
    });
    return stdout;
  };

  const make = (name: string) => {
    execFileSync("mkdir", ["-p", vendor]);
    const source = join(vendor, "empty.c");
    writeFileSync(source, "int nothing_of_a_vendor;\n");
    execFileSync("cc", ["-shared", "-fPIC", source, "-o", join(vendor, name)]);
  };

  test.each([
    ["libcudart.so.11.0", "is not used: the CUDA back end carries its own CUDA runtime"],
    ["libamdhip64.so.6", "is taken for the ROCm runtime, before the system's"],
    ["libcuda.so.1", "is taken for the NVIDIA driver, before the system's"],
  ])("%s: the doctor says what it means", (name, words) => {
    make(name);
    const text = doctor();
    expect(text).toContain(`  ${join(vendor, name)}\n    ${words}`);
    expect(text).toMatch(/Verdict: good/);
  });

  test.for([
    ["libamdhip64.so.6", "hip"],
    ["libcuda.so.1", "cuda"],
  ] as const)("%s: the back end %s says what it lacks", ([name, backend], context) => {
    if (!installed.packed.some((one) => one.name.startsWith(`@tessera/${backend}-`)))
      context.skip(`the ${backend} back end wasn't built (scripts/build-native.mjs ${backend})`);
    make(name);
    const text = doctor();
    expect(text).toMatch(new RegExp(`${backend} .*: (driver|runtime)-[a-z-]+\\n.*\\n.*cause .*${join(vendor, name)}`));
    expect(text).toContain(`fix 1    take ${vendor} out of LD_LIBRARY_PATH`);
  });
});
