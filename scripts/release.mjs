// Packs what is published, as it is published.
//   pnpm release:dry             everything into out/release, a table of it, and whether it may be published
//   pnpm release                 as --stage, then `changeset publish`
//   --stage                      leaves the native files where `changeset publish` takes them from
//   --out FOLDER                 in place of out/release
//   --here                       of the platform packages those for this machine only
//   --incomplete                 what isn't built here is left out, and named; else that is an error
//   --counts                     closes with the counts line of lanes.mjs
// Nothing is built: `npm run build`, `node scripts/build-native.mjs ggml`, `cross linux-arm64-gnu`, `cross win32-x64`, `cuda`,
// `hip` do that, in this order.
import { createHash } from "node:crypto";
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { line, none } from "./lib/counts.mjs";
import { crossFile } from "./lib/native.mjs";
import { objections } from "./lib/objections.mjs";
import { hostPlatform, parts, platforms } from "./lib/platforms.mjs";
import { fail, root, run, which } from "./lib/sh.mjs";

const args = process.argv.slice(2);
const flag = (name) => args.includes(name);
const out = flag("--out") ? args[args.indexOf("--out") + 1] : join(root, "out", "release");
const stageOnly = flag("--stage");
const here = hostPlatform();
const readJson = (file) => JSON.parse(readFileSync(file, "utf8"));

/** Folders of all packages that aren't private, those for platforms first: they are there when their parents ask for them. */
function published() {
  const folders = ["packages", "backends"].flatMap((group) =>
    readdirSync(join(root, group)).flatMap((name) => {
      const folder = join(group, name);
      const npm = join(root, folder, "npm");
      return [...(existsSync(npm) ? readdirSync(npm).map((id) => join(folder, "npm", id)) : []), folder];
    }),
  );
  const packages = folders
    .filter((folder) => existsSync(join(root, folder, "package.json")))
    .map((folder) => ({ folder, manifest: readJson(join(root, folder, "package.json")) }))
    .filter(({ manifest }) => !manifest.private);
  const rank = ({ folder }) => (folder.includes("/npm/") ? 0 : 1);
  return packages.sort((a, b) => rank(a) - rank(b) || a.manifest.name.localeCompare(b.manifest.name));
}

/** Where a build left a part's file for a platform, if it did. */
function builtFile(part, id) {
  const file = id === here ? join(root, parts[part].folder, parts[part].built) : crossFile(part, id);
  return file && existsSync(file) ? file : undefined;
}

/** Copies a file into its package, without its symbol table, and says there what it is. */
function stage(part, id, file, folder) {
  const target = join(folder, parts[part].file);
  copyFileSync(file, target);
  const strip = which(`${stripFor(id)}strip`);
  if (!strip) fail("strip (binutils) is missing");
  run(strip, ["--strip-unneeded", target]);
  const bytes = readFileSync(target);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const integrity = { [parts[part].file]: { bytes: bytes.length, sha256 } };
  writeFileSync(join(folder, "integrity.json"), `${JSON.stringify(integrity, null, 2)}\n`);
}

function stripFor(id) {
  if (platforms[id].os === "win32") return "x86_64-w64-mingw32-";
  return platforms[id].cpu === "arm64" && process.arch !== "arm64" ? "aarch64-linux-gnu-" : "";
}

const counts = none();
const rows = []; // [name, MB packed, remark]
const sizes = new Map();
const good = (ok) => {
  counts[ok ? "passed" : "failed"] += 1;
};

if (!stageOnly) {
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
}
const scratch = mkdtempSync(join(tmpdir(), "tessera-release-"));
const list = published();
const versions = new Set(list.map(({ manifest }) => manifest.version));
if (versions.size > 1) fail(`versions differ, which changesets keeps the same: ${[...versions].join(", ")}`);

for (const { folder, manifest } of list) {
  const [, part, id] = /([^/]+)\/npm\/([^/]+)$/.exec(folder) ?? [];
  let remark = "";
  let packed = join(root, folder);
  if (id) {
    if (flag("--here") && id !== here) continue;
    const file = builtFile(part, id);
    if (!file) {
      rows.push([manifest.name, "-", "NOT BUILT here"]);
      if (flag("--incomplete")) {
        counts.skipped++;
        counts.reasons[`${manifest.name}: not built here`] = 1;
      } else good(false);
      continue;
    }
    const bad = objections(part, id, file);
    // A back end that somebody built for one architecture, say, can be tried out, and isn't published.
    const forPublication =
      bad.length > 0 && flag("--incomplete") && bad.every((words) => words.startsWith("has no code for"));
    if (forPublication) {
      counts.skipped++;
      counts.reasons[`${manifest.name}: not complete: ${bad.join("; ")}`] = 1;
    } else good(bad.length === 0);
    remark = bad.join("; ");
    if (!stageOnly) {
      // Packed from a copy: a clone stays without the files, and two of these may run at the same time.
      packed = join(scratch, id, part);
      cpSync(join(root, folder), packed, { recursive: true });
      copyFileSync(join(root, "LICENSE"), join(packed, "LICENSE"));
    }
    stage(part, id, file, packed);
  }
  if (stageOnly) {
    if (remark) rows.push([manifest.name, "-", remark]);
    continue;
  }
  const before = new Set(readdirSync(out));
  const pnpm = join(root, "node_modules/.bin/pnpm");
  run(pnpm, ["pack", "--pack-destination", out], { cwd: packed, stdio: ["ignore", "ignore", 2] });
  const [tarball] = readdirSync(out).filter((name) => !before.has(name));
  const megabytes = statSync(join(out, tarball)).size / 1e6;
  sizes.set(manifest.name, megabytes);
  rows.push([manifest.name, megabytes.toFixed(2), remark]);
}
rmSync(scratch, { recursive: true, force: true });

for (const [part, { platforms: ids, budget }] of Object.entries(parts)) {
  for (const id of ids) {
    const own = sizes.get(`@tessera/${part}-${id}`);
    if (own === undefined) continue;
    const sum = own + sizes.get(`@tessera/${part}`);
    good(sum <= budget);
    rows.push([
      `${part} on ${id}`,
      sum.toFixed(2),
      sum <= budget ? `budget ${budget} MB` : `OVER its budget of ${budget} MB`,
    ]);
  }
}
const width = Math.max(...rows.map(([name]) => name.length));
for (const [name, size, remark] of rows) console.log(`${name.padEnd(width)}  ${size.padStart(6)}  ${remark}`.trimEnd());
if (!stageOnly) console.log(`\nMB packed (10^6 bytes); tarballs in ${relative(process.cwd(), out) || "."}`);
for (const [id, { recipe }] of Object.entries(platforms)) if (recipe) console.log(`not built by anybody yet: ${id}`);
if (flag("--counts")) console.log(line(counts));
if (counts.failed > 0) {
  console.error(`\n${counts.failed} of this must not be published, see above.`);
  process.exitCode = 1;
}
