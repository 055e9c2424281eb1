let musl: boolean | undefined;

/** Is the C library musl (Alpine)? A library built for glibc can't load there. */
export function isMusl(): boolean {
  if (process.platform !== "linux") return false;
  musl ??= readMusl();
  return musl;
}

function readMusl(): boolean {
  // excludeNetwork: looking up host names can take seconds. Newer than the types.
  const report = process.report as NodeJS.ProcessReport & { excludeNetwork?: boolean };
  if (report === undefined) return false;
  const { excludeNetwork } = report;
  report.excludeNetwork = true;
  const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } };
  if (excludeNetwork !== undefined) report.excludeNetwork = excludeNetwork;
  return header?.glibcVersionRuntime === undefined;
}
