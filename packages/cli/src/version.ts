import { readFileSync } from "node:fs";

/** The package's own version. package.json is one folder up from src/ and from dist/ alike. */
export function version(): string {
  const text = readFileSync(new URL("../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}
