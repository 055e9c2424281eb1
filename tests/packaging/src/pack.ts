import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..");

/** What is published, and where it lives. */
export const packages = {
  "@tessera/core": "packages/core",
  "@tessera/cpu": "backends/cpu",
  "@tessera/cli": "packages/cli",
} as const;
export type PackageName = keyof typeof packages;

export interface Installed {
  /** A folder whose node_modules holds the packages as a registry would have delivered them. */
  readonly folder: string;
  /** Paths inside each tarball, sorted. */
  readonly files: Readonly<Record<PackageName, readonly string[]>>;
  remove(): void;
}

/** Packs every package and unpacks the tarballs into a node_modules outside the repository; asks no registry. */
export function packAndInstall(): Installed {
  const folder = mkdtempSync(join(tmpdir(), "tessera-packaging-"));
  const files = {} as Record<PackageName, readonly string[]>;
  for (const name of Object.keys(packages) as PackageName[]) {
    const tarballs = join(folder, "tarballs", packages[name]);
    mkdirSync(tarballs, { recursive: true });
    execFileSync(join(root, "node_modules/.bin/pnpm"), ["pack", "--pack-destination", tarballs], {
      cwd: join(root, packages[name]),
      stdio: "pipe",
    });
    const [tarball] = readdirSync(tarballs);
    if (!tarball) throw new Error(`pnpm pack made no tarball for ${name}`);
    const target = join(folder, "node_modules", name);
    mkdirSync(target, { recursive: true });
    execFileSync("tar", ["-xzf", join(tarballs, tarball), "-C", target, "--strip-components=1"]);
    files[name] = execFileSync("tar", ["-tzf", join(tarballs, tarball)], { encoding: "utf8" })
      .trim()
      .split("\n")
      .map((path) => path.replace(/^package\//, ""))
      .sort();
  }
  // The one dependency that comes from elsewhere.
  symlinkSync(join(root, "packages/cli/node_modules/commander"), join(folder, "node_modules/commander"));
  return { folder, files, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
