import { createRequire } from "node:module";
import { dirname } from "node:path";
import type { ProbeReport } from "@tessera/core";

export interface PackageFinding {
  readonly name: string;
  /** Undefined if it isn't installed. */
  readonly version: string | undefined;
  readonly folder: string | undefined;
}

const require = createRequire(import.meta.url);

/** The packages of this installation; a back end's is looked for from core, as the engine does. */
export function packages(reports: readonly ProbeReport[]): PackageFinding[] {
  const optional = reports.map(({ backend }) => backend).filter((name) => name !== "reference");
  const coreRequire = createRequire(require.resolve("@tessera/core"));
  return [
    find(require, "@tessera/core"),
    find(require, "@tessera/cli", "../package.json"),
    ...optional.map((name) => find(coreRequire, `@tessera/${name}`)),
  ];
}

function find(from: NodeJS.Require, name: string, specifier = `${name}/package.json`): PackageFinding {
  for (const path of [specifier, `../${specifier}`]) {
    try {
      const resolved = from.resolve(path);
      const { version, name: found } = from(resolved) as { version: string; name: string };
      if (found === name) return { name, version, folder: dirname(resolved) };
    } catch {
      // not there
    }
  }
  return { name, version: undefined, folder: undefined };
}
