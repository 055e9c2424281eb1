/** What of the system decides which prebuilt files load here. */

/** The C library that prebuilt files for glibc were linked with asks for this one or a newer (scripts/lib/platforms.mjs). */
export const glibcFloor = "2.34";

let glibc: string | null | undefined;

/** Version of glibc; null where the C library is another (musl on Alpine) or the system isn't Linux. */
export function glibcVersion(): string | null {
  if (process.platform !== "linux") return null;
  glibc ??= readVersion();
  return glibc;
}

/** Is the C library musl (Alpine)? A library built for glibc can't load there. */
export function isMusl(): boolean {
  return process.platform === "linux" && glibcVersion() === null;
}

/** As packages are named: "linux-x64-gnu", "linux-arm64-musl", "darwin-arm64", ... */
export function platformName(): string {
  const base = `${process.platform}-${process.arch}`;
  if (process.platform !== "linux") return base;
  return `${base}-${isMusl() ? "musl" : "gnu"}`;
}

/**
 * Platforms that there are packages for. Told here because a package that isn't installed can't be asked; a test holds it to
 * scripts/lib/platforms.mjs.
 */
export const publishedFor = {
  core: ["linux-x64-gnu", "linux-arm64-gnu", "win32-x64"],
  cpu: ["linux-x64-gnu", "linux-arm64-gnu", "win32-x64"],
  cuda: ["linux-x64-gnu"],
  hip: ["linux-x64-gnu"],
} as const satisfies { readonly [part: string]: readonly string[] } as {
  readonly [part in "core" | "cpu" | "cuda" | "hip"]: readonly string[];
};

function readVersion(): string | null {
  // excludeNetwork: looking up host names can take seconds. Newer than the types.
  const report = process.report as NodeJS.ProcessReport & { excludeNetwork?: boolean };
  if (report === undefined) return glibcFloor;
  const { excludeNetwork } = report;
  report.excludeNetwork = true;
  const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } };
  if (excludeNetwork !== undefined) report.excludeNetwork = excludeNetwork;
  return header?.glibcVersionRuntime ?? null;
}

/** What works on every platform, with what npm brings alone. */
export const withoutLibrary =
  'compute in plain TypeScript, slowly: openEngine({ backend: "reference" }), or TESSERA_BACKEND=reference';

/** What helps where the C library is the wrong one, best first. `needed`: the version that a file asks for, if it isn't ours. */
export function libcFixes(needed: string = glibcFloor): string[] {
  const image = isMusl() ? " (in Docker, node:22-slim in place of node:22-alpine)" : "";
  const known = needed === glibcFloor ? ": RHEL 9, Debian 12, Ubuntu 22.04 and later have it" : "";
  return [
    `use a system with glibc ${needed} or newer${image}${known}`,
    "build Tessera from source on this system and set TESSERA_BACKEND_PATH to the folder of its libraries",
  ];
}

/** If the dynamic linker's words mean that the C library is the wrong one: that, in ours, and what helps. */
export function wrongLibc(
  path: string,
  words: string,
): { readonly reason: string; readonly fixes: string[] } | undefined {
  const needed = /version [`'](GLIBC_([\d.]+))' not found/.exec(words)?.[2];
  if (needed !== undefined) {
    const here = glibcVersion() ?? "musl";
    return { reason: `${path} needs glibc ${needed} or newer, this system has ${here}`, fixes: libcFixes(needed) };
  }
  if (isMusl() && /ld-linux|libc\.so\.6|Error relocating/.test(words)) {
    const reason = `${path} is built for glibc, the C library of this system is musl (${words})`;
    return { reason, fixes: libcFixes() };
  }
  return undefined;
}
