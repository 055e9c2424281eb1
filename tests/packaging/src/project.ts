/** Empty projects of users, and what is done in them. */
import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./pack.js";
import { tool } from "./tools.js";

export type Manager = "npm" | "pnpm" | "yarn 1" | "yarn 4" | "yarn 4, Plug'n'Play";

export interface Ended {
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export class Project {
  constructor(
    readonly folder: string,
    private readonly registry: string,
  ) {
    mkdirSync(folder, { recursive: true });
    this.write("package.json", JSON.stringify({ name: "project", version: "1.0.0", private: true }));
    this.write(".npmrc", `registry=${registry}\ncache=${join(folder, "..", ".npm-cache")}\n`);
  }

  write(name: string, content: string): string {
    const file = join(this.folder, name);
    writeFileSync(file, content);
    return file;
  }

  /** Runs a program in the project's folder. */
  run(program: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Ended {
    const { NODE_OPTIONS: _, ...clean } = process.env;
    const inherited = Object.entries(clean).filter(([name]) => !/^(TESSERA_|npm_|NODE_PATH$|CI$)/.test(name));
    const { status, signal, stdout, stderr } = spawnSync(program, args, {
      cwd: this.folder,
      encoding: "utf8",
      timeout: 300_000,
      env: { ...Object.fromEntries(inherited), NO_COLOR: "1", ...env },
    });
    return { status, signal, stdout, stderr };
  }

  node(args: readonly string[], env: NodeJS.ProcessEnv = {}): Ended {
    return this.run(process.execPath, args, env);
  }

  install(manager: Manager, packages: readonly string[], ...options: string[]): Ended {
    const ended = this.#install(manager, packages, options);
    if (ended.status !== 0) throw new Error(`${manager} failed:\n${ended.stdout}\n${ended.stderr}`);
    return ended;
  }

  #install(manager: Manager, packages: readonly string[], options: readonly string[]): Ended {
    const cache = join(this.folder, "..", ".caches");
    switch (manager) {
      case "npm":
        return this.run("npm", ["install", "--no-audit", "--no-fund", ...options, ...packages]);
      case "pnpm": {
        const pnpm = join(root, "node_modules/pnpm/bin/pnpm.cjs");
        return this.node([pnpm, "add", "--store-dir", join(cache, "pnpm"), ...options, ...packages]);
      }
      case "yarn 1": {
        const settings = ["--registry", this.registry, "--cache-folder", join(cache, "yarn-1"), "--non-interactive"];
        return this.node([tool("yarn/bin/yarn.js"), "add", ...settings, ...options, ...packages]);
      }
      default: {
        const linker = manager === "yarn 4" ? "node-modules" : "pnp";
        this.write(
          ".yarnrc.yml",
          `npmRegistryServer: "${this.registry}"\nunsafeHttpWhitelist: ["127.0.0.1"]\nnodeLinker: ${linker}\n` +
            `npmMinimalAgeGate: 0\nglobalFolder: ${JSON.stringify(join(cache, "yarn-4"))}\nenableGlobalCache: false\nenableTelemetry: false\nenableImmutableInstalls: false\n`,
        );
        this.write("yarn.lock", "");
        return this.node([tool("@yarnpkg/cli-dist/bin/yarn.js"), "add", ...options, ...packages]);
      }
    }
  }

  /** The JavaScript of `node`, with what the manager puts in front of it. */
  program(manager: Manager, args: readonly string[]): Ended {
    if (manager !== "yarn 4, Plug'n'Play") return this.node(args);
    return this.node([tool("@yarnpkg/cli-dist/bin/yarn.js"), "node", ...args]);
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
