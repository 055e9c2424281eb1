/** A registry of this machine's own, with what we publish and what that depends on, and nothing else. */
import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { folderOf, foreign, type Packed, root } from "./pack.js";
import { tool } from "./tools.js";

export interface Registry {
  readonly url: string;
  stop(): void;
}

export async function startRegistry(folder: string, packed: readonly Packed[]): Promise<Registry> {
  mkdirSync(folder, { recursive: true });
  const port = await freePort();
  const url = `http://127.0.0.1:${port}/`;
  const config = join(folder, "config.yaml");
  writeFileSync(
    config,
    // No uplink: what isn't published here doesn't exist.
    `storage: ${JSON.stringify(join(folder, "storage"))}
auth: { htpasswd: { file: ${JSON.stringify(join(folder, "htpasswd"))} } }
uplinks: {}
packages: { "**": { access: $all, publish: $all } }
max_body_size: 200mb
log: { type: stdout, format: json, level: warn }
`,
  );
  const server = spawn(process.execPath, [tool("verdaccio/bin/verdaccio"), "-c", config, "-l", `127.0.0.1:${port}`], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  try {
    await fill(url, server, folder, packed);
  } catch (error) {
    server.kill(); // else it outlives the tests
    throw error;
  }
  return { url, stop: () => void server.kill() };
}

async function fill(url: string, server: ChildProcess, folder: string, packed: readonly Packed[]): Promise<void> {
  await answers(url, server);
  const { host } = new URL(url);
  // Any token: everybody may publish here, but npm asks for one.
  const npmrc = join(folder, "npmrc");
  writeFileSync(npmrc, `registry=${url}\n//${host}/:_authToken=anybody\n`);
  for (const { tarball } of packed) publish(tarball, npmrc);
  for (const source of notBuilt(packed)) publish(source, npmrc);
  closure(foreign(packed).map(folderOf)).forEach((source, n) => {
    // As it was delivered: npm would choose its files anew.
    const tarball = join(folder, `foreign-${n}.tgz`);
    execFileSync("tar", [
      "--hard-dereference",
      "-czf",
      tarball,
      "--exclude=./node_modules",
      "--transform=s,^\\.,package,",
      "-C",
      source,
      ".",
    ]);
    publish(tarball, npmrc);
  });
}

/**
 * Packages for other platforms that weren't built here, without their file: Yarn asks for the manifest of each optional dependency,
 * and scripts/release.mjs publishes none without them.
 */
function notBuilt(packed: readonly Packed[]): string[] {
  const missing = packed.flatMap(({ manifest }) =>
    Object.keys(manifest.optionalDependencies ?? {}).filter((name) => !packed.some((one) => one.name === name)),
  );
  return missing.map((name) => {
    const [, part, id] = /^@tessera\/([a-z]+)-(.*)$/.exec(name)!;
    return ["packages", "backends"].map((group) => join(root, group, part!, "npm", id!)).find(existsSync)!;
  });
}

function publish(source: string, npmrc: string): void {
  const args = ["publish", source, "--userconfig", npmrc, "--ignore-scripts", "--access", "public", "--tag", "latest"];
  const { status, stderr } = spawnSync("npm", args, { encoding: "utf8", cwd: dirname(npmrc) });
  if (status !== 0) throw new Error(`npm publish ${source} failed:\n${stderr}`);
}

/** Folders of packages and of all that they depend on. */
function closure(folders: readonly string[]): string[] {
  const found = new Set<string>();
  const add = (folder: string) => {
    const real = realpathSync(folder);
    if (found.has(real)) return;
    found.add(real);
    const { dependencies = {} } = JSON.parse(readFileSync(join(real, "package.json"), "utf8"));
    for (const name of Object.keys(dependencies)) add(dependencyOf(real, name));
  };
  folders.forEach(add);
  return [...found];
}

function dependencyOf(folder: string, name: string): string {
  for (let at = folder; dirname(at) !== at; at = dirname(at)) {
    const candidate = join(at, "node_modules", name);
    if (existsSync(candidate)) return candidate;
  }
  throw new Error(`${name}, on which ${folder} depends, isn't installed`);
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer();
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

async function answers(url: string, server: ChildProcess): Promise<void> {
  const deadline = Date.now() + 60_000;
  while (Date.now() < deadline) {
    if (server.exitCode !== null) throw new Error(`the registry ended with ${server.exitCode}`);
    const good = await fetch(`${url}-/ping`).then(
      (answer) => answer.ok,
      () => false,
    );
    if (good) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  server.kill();
  throw new Error("the registry doesn't answer");
}
