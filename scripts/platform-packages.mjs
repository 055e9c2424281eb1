// The files that follow from scripts/lib/platforms.mjs and from the version of @tessera/core: a package per part and
// platform (npm/<platform>/ in the part's folder), the parts' optionalDependencies, the main files of the back ends'
// packages, core's version in its source. The build copies nothing there: scripts/release.mjs does, before it packs.
//   node scripts/platform-packages.mjs           writes them (after an edit of the list, or `changeset version`)
//   node scripts/platform-packages.mjs --check   exits with 1 if one isn't as it would be written
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { line } from "./lib/counts.mjs";
import { parts, platforms } from "./lib/platforms.mjs";
import { root } from "./lib/sh.mjs";

const check = process.argv.includes("--check");
const version = JSON.parse(readFileSync(join(root, "packages/core/package.json"), "utf8")).version;
const json = (value) => `${JSON.stringify(value, null, 2)}\n`;

const files = new Map(); // path in the repository → content

function platformPackage(part, id) {
  const { folder, file, what } = parts[part];
  const { os, cpu, libc } = platforms[id];
  const name = `@tessera/${part}-${id}`;
  files.set(
    join(folder, "npm", id, "package.json"),
    json({
      name,
      version,
      description: `${file} for ${id}: ${what} of Tessera. Installed by @tessera/${part}`,
      license: "MIT",
      type: "commonjs",
      engines: { node: ">=20.19" },
      os: [os],
      cpu: [cpu],
      ...(libc && { libc: [libc] }),
      preferUnplugged: true, // Yarn's zip files are no place for a library
      exports: {
        [`./${file}`]: `./${file}`,
        "./integrity.json": "./integrity.json",
        "./package.json": "./package.json",
      },
      files: [file, "integrity.json"],
      sideEffects: false,
    }),
  );
  files.set(
    join(folder, "npm", id, "README.md"),
    `# ${name}\n\n\`${file}\` for ${id}: ${what} of Tessera. Don't install it by hand: \`@tessera/${part}\` asks for it where it ` +
      `belongs.\n`,
  );
}

function mainFiles(part) {
  const { folder, file, built, main = "index" } = parts[part];
  files.set(
    join(folder, `${main}.cjs`),
    `// Written by scripts/platform-packages.mjs. Where the library is: in a clone what was built here, else in the package for
// this platform, which the package manager picks by os, cpu and libc.
const { existsSync } = require("node:fs");
const { join } = require("node:path");

const file = "${file}";

/** As @tessera/core names it (src/native/platform.ts). */
function platform() {
  const base = \`\${process.platform}-\${process.arch}\`;
  if (process.platform !== "linux" || !process.report) return base;
  const { excludeNetwork } = process.report;
  process.report.excludeNetwork = true; // else it may ask DNS
  const { glibcVersionRuntime } = process.report.getReport().header;
  process.report.excludeNetwork = excludeNetwork;
  return \`\${base}-\${glibcVersionRuntime ? "gnu" : "musl"}\`;
}

function find(platformPackage) {
  const built = join(__dirname, "${dirname(built)}", file);
  if (existsSync(built)) return built;
  try {
    return require.resolve(\`\${platformPackage}/\${file}\`);
  } catch {
    return undefined;
  }
}

exports.platformPackage = \`@tessera/${part}-\${platform()}\`;
exports.library = find(exports.platformPackage);
`,
  );
  files.set(
    join(folder, `${main}.d.cts`),
    `/** Absolute path of \`${file}\`; undefined if it is neither built here nor installed for this platform. */
export declare const library: string | undefined;
/** Name of the package that brings it to this platform. */
export declare const platformPackage: string;
`,
  );
}

function optionalDependencies(part) {
  const path = join(parts[part].folder, "package.json");
  const manifest = JSON.parse(readFileSync(join(root, path), "utf8"));
  const others = Object.entries(manifest.optionalDependencies ?? {}).filter(
    ([name]) => !name.startsWith(`@tessera/${part}-`),
  );
  const own = parts[part].platforms.map((id) => [`@tessera/${part}-${id}`, "workspace:*"]);
  const { devDependencies, ...rest } = { ...manifest, optionalDependencies: undefined };
  delete rest.optionalDependencies;
  files.set(
    path,
    json({
      ...rest,
      optionalDependencies: Object.fromEntries([...own, ...others].sort()),
      ...(devDependencies && { devDependencies }),
    }),
  );
}

for (const part of Object.keys(parts)) {
  for (const id of parts[part].platforms) platformPackage(part, id);
  if (part !== "core") mainFiles(part);
  optionalDependencies(part);
}
files.set(
  "packages/core/src/version.ts",
  `/** This package's version. Written by scripts/platform-packages.mjs; a bundle has no package.json to read it from. */
export const version = "${version}";
`,
);

const wrong = [];
for (const [path, content] of files) {
  const file = join(root, path);
  if (existsSync(file) && readFileSync(file, "utf8") === content) continue;
  wrong.push(path);
  if (check) continue;
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, content);
}
// A platform that was taken from the list.
for (const [part, { folder, platforms: listed }] of Object.entries(parts)) {
  const npm = join(root, folder, "npm");
  for (const id of existsSync(npm) ? readdirSync(npm) : []) {
    if (listed.includes(id)) continue;
    wrong.push(`${folder}/npm/${id} (${part} isn't for ${id})`);
    if (!check) rmSync(join(npm, id), { recursive: true });
  }
}
for (const path of wrong)
  console.log(`${check ? "not as written by scripts/platform-packages.mjs:" : "wrote"} ${path}`);
if (check) console.log(line({ passed: files.size - wrong.length, failed: wrong.length, skipped: 0 }));
if (check && wrong.length > 0) process.exitCode = 1;
