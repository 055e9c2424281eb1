// Everything that `tessera bench` needs on a machine with no network, no Node and no compiler, in one archive:
//   node scripts/bench-bundle.mjs            out/tessera-bench.tar.gz: Node itself, the packages as they are published with
//                                            whatever back ends are built here, and a script that starts the command
// There:
//   tar xzf tessera-bench.tar.gz && tessera-bench/tessera bench --suite prefill --json result.json
//   tessera-bench/gpu-check cuda                     everything that can be asked of a GPU (scripts/gpu-check.mjs)
//   sh tessera-bench/tests/reliability/gpu.sh cuda   fuzzers, soak, storm, sanitizers
//   tessera-bench/node tessera-bench/node_modules/@tessera/bench/native/compare.mjs cuda     the harness beside a plain loop
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fail, output, root, run } from "./lib/sh.mjs";

const folder = join(root, "out", "tessera-bench");
const modules = join(folder, "node_modules");
const tarballs = join(root, "out", "tessera-bench-tarballs");
rmSync(folder, { recursive: true, force: true });
rmSync(tarballs, { recursive: true, force: true });
mkdirSync(modules, { recursive: true });

// That a back end is built for one GPU only is no objection here.
const release = ["scripts/release.mjs", "--incomplete", "--here", "--out", tarballs];
const packing = spawnSync(process.execPath, release, { cwd: root, encoding: "utf8" });
if (packing.status !== 0 && !/must not be published/.test(packing.stderr)) fail(packing.stderr);

const names = [];
for (const tarball of readdirSync(tarballs)) {
  if (!tarball.endsWith(".tgz")) continue;
  const manifest = JSON.parse(output("tar", ["-xzOf", join(tarballs, tarball), "package/package.json"]));
  const target = join(modules, manifest.name);
  mkdirSync(target, { recursive: true });
  run("tar", ["-xzf", join(tarballs, tarball), "-C", target, "--strip-components=1"]);
  names.push(manifest);
}
rmSync(tarballs, { recursive: true });

/** What comes from elsewhere, and what that needs in turn. */
function addForeign(name, from) {
  if (name.startsWith("@tessera/")) return;
  const target = join(modules, name);
  const manifestFile = find(name, from);
  const manifest = JSON.parse(readFileSync(manifestFile, "utf8"));
  if (!statSync(target, { throwIfNoEntry: false }))
    cpSync(dirname(manifestFile), target, {
      recursive: true,
      dereference: true,
      filter: (path) => !/node_modules$/.test(path),
    });
  for (const next of Object.keys(manifest.dependencies ?? {})) addForeign(next, manifestFile);
}

/** The package.json of a dependency: some packages don't export it. */
function find(name, from) {
  for (const place of createRequire(from).resolve.paths(name)) {
    const file = join(place, name, "package.json");
    if (statSync(file, { throwIfNoEntry: false })) return realpathSync(file); // pnpm's links: what it needs is beside it
  }
  return fail(`${name}, which ${from} needs, isn't installed`);
}

for (const manifest of names) {
  const source = readdirSync(join(root, "packages")).find((one) => `@tessera/${one}` === manifest.name);
  if (!source) continue;
  for (const name of Object.keys(manifest.dependencies ?? {}))
    addForeign(name, join(root, "packages", source, "package.json"));
}

run(process.execPath, ["scripts/build-limits.mjs"], { cwd: root });
cpSync(join(root, "packages/bench/native/build"), join(modules, "@tessera/bench/native/build"), { recursive: true });
cpSync(join(root, "packages/bench/native/compare.mjs"), join(modules, "@tessera/bench/native/compare.mjs"));
cpSync(process.execPath, join(folder, "node"), { dereference: true });
const commit = output("git", ["-C", root, "rev-parse", "--short=12", "HEAD"])?.trim() ?? "";
const changed = output("git", ["-C", root, "status", "--porcelain", "-uno"])?.trim() ? " and changes" : "";
const starts = { tessera: "node_modules/@tessera/cli/bin/tessera.js", "gpu-check": "scripts/gpu-check.mjs" };
for (const [name, path] of Object.entries(starts)) {
  const script = `#!/bin/sh
# The commit that this was made of goes into result files.
here=$(cd "$(dirname "$0")" && pwd)
export TESSERA_COMMIT='${commit}${changed}'
exec "$here/node" "$here/${path}" "$@"
`;
  writeFileSync(join(folder, name), script);
  chmodSync(join(folder, name), 0o755);
}
// What gpu-check runs, where it is in a clone; the programs and defective libraries that are built.
const checked = ["scripts/gpu-check.mjs", "scripts/lib/sh.mjs", "benchmarks/overhead.mjs", "benchmarks/cuda-peers"];
checked.push("tests/mutation/cuda.mjs", "tests/mutation/cuda-mutations.mjs", "out/cuda-mutants");
checked.push("tests/reliability/gpu.sh", "tests/reliability/soak.mjs", "tests/reliability/sanitize.mjs");
checked.push("tests/reliability/src");
for (const backend of ["cuda", "hip"]) {
  checked.push(
    `build/${backend}/tests/fuzz/fuzz-volume`,
    `build/${backend}/backends/${backend}/${backend}-driver-cycles`,
  );
  for (const place of [`build/${backend}/tests/abi`, `build/${backend}/backends/${backend}`]) {
    if (!existsSync(join(root, place))) continue;
    for (const file of readdirSync(join(root, place))) {
      if (/^test-(abi-\w+|\w+-device)$/.test(file)) checked.push(`${place}/${file}`);
    }
  }
}
for (const path of checked) {
  if (existsSync(join(root, path))) cpSync(join(root, path), join(folder, path), { recursive: true });
}
const archive = join(root, "out", "tessera-bench.tar.gz");
run("tar", ["-C", join(root, "out"), "-czf", archive, "tessera-bench"]);
const size = (statSync(archive).size / 2 ** 20).toFixed(0);
console.log(`${names.map(({ name }) => name).join(", ")}\n${archive.slice(root.length + 1)}, ${size} MiB`);
