import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { libraries, mayLack } from "./built.js";
import { root } from "./root.js";

export { root } from "./root.js";

export interface Packed {
  readonly name: string;
  readonly tarball: string;
  readonly manifest: {
    readonly name: string;
    readonly version: string;
    readonly os?: readonly string[];
    readonly scripts?: Readonly<Record<string, string>>;
    readonly dependencies?: Readonly<Record<string, string>>;
    readonly optionalDependencies?: Readonly<Record<string, string>>;
    readonly bin?: Readonly<Record<string, string>>;
    readonly exports?: unknown;
  };
  /** Paths inside the tarball, sorted. */
  readonly files: readonly string[];
}

/** Packs everything that is published and built, as scripts/release.mjs does; `here`: for this machine's platform only. */
export function packAll(folder: string, options: { readonly here: boolean }): Packed[] {
  const tarballs = join(folder, "tarballs");
  const flags = ["--incomplete", "--out", tarballs, ...(options.here ? ["--here"] : [])];
  // Its objections to what it packs are the lane's release-dry: a back end built for one GPU can be tried out.
  try {
    execFileSync(process.execPath, [join(root, "scripts/release.mjs"), ...flags], { stdio: "pipe", encoding: "utf8" });
  } catch (error) {
    if (!/must not be published/.test(String((error as { stderr?: string }).stderr))) throw error;
  }
  return readdirSync(tarballs).map((file) => {
    const tarball = join(tarballs, file);
    const tar = (...args: string[]) => execFileSync("tar", args, { encoding: "utf8" });
    const manifest = JSON.parse(tar("-xzOf", tarball, "package/package.json")) as Packed["manifest"];
    const files = tar("-tzf", tarball)
      .trim()
      .split("\n")
      .map((path) => path.replace(/^package\//, ""))
      .sort();
    return { name: manifest.name, tarball, manifest, files };
  });
}

export interface Installed {
  /** A folder whose node_modules holds the packages as a registry would have delivered them. */
  readonly folder: string;
  readonly packed: readonly Packed[];
  remove(): void;
}

/** Packs every package and unpacks the tarballs into a node_modules outside the repository; asks no registry. */
export function packAndInstall(): Installed {
  const folder = mkdtempSync(join(tmpdir(), "tessera-packaging-"));
  const packed = packAll(folder, { here: true });
  for (const part of libraries.keys())
    if (!mayLack(part) && !packed.some(({ name }) => name.startsWith(`@tessera/${part}-`)))
      throw new Error(`the package of ${libraries.get(part)} wasn't packed: it isn't built, and should be by now`);
  for (const { name, tarball } of packed) {
    const target = join(folder, "node_modules", name);
    mkdirSync(target, { recursive: true });
    execFileSync("tar", ["-xzf", tarball, "-C", target, "--strip-components=1"]);
  }
  // What comes from elsewhere.
  for (const name of foreign(packed)) symlinkSync(folderOf(name), join(folder, "node_modules", name));
  return { folder, packed, remove: () => rmSync(folder, { recursive: true, force: true }) };
}

/** Dependencies of the packages that are none of ours. */
export function foreign(packed: readonly Packed[]): string[] {
  const names = packed.flatMap(({ manifest }) => Object.keys(manifest.dependencies ?? {}));
  return [...new Set(names)].filter((name) => !name.startsWith("@tessera/")).sort();
}

/** Where a dependency of one of our packages lies in this checkout. */
export function folderOf(name: string): string {
  for (const owner of readdirSync(join(root, "packages"))) {
    const folder = join(root, "packages", owner, "node_modules", name);
    try {
      if (JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).name === name) return folder;
    } catch {
      // not a dependency of this one
    }
  }
  throw new Error(`${name} isn't installed in packages/*/node_modules`);
}
