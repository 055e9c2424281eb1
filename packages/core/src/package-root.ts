/** The folder of @tessera/core, as a URL that ends in "/". Source (src/) and build (dist/) lie at the same depth in it. */
export const packageRoot = new URL("..", import.meta.url);

/** Where a script that Node starts by itself lies once built (tsup.config.ts): a file of its own in dist/. */
export function builtScript(name: string): URL {
  return new URL(`dist/${name}.js`, packageRoot);
}
