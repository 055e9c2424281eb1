// Builds what this machine can run: the CPU back end, the addon, the TypeScript packages. GPU code: `npm run build:gpu`.
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { requireNativeTools } from "./lib/native.mjs";
import { fail, isMain, root, run } from "./lib/sh.mjs";

export function build() {
  requireNativeTools();
  const bin = join(root, "node_modules", ".bin");
  if (!existsSync(join(bin, "turbo"))) fail("Nothing is installed yet. Run `npm run setup` first.");
  run(join(bin, "turbo"), ["run", "build:native", "build", "--output-logs=errors-only", "--log-prefix=none"], {
    stdio: ["ignore", 2, 2], // a build is no result: stdout stays free for the command that asked for it
    env: {
      ...process.env,
      PATH: `${bin}${delimiter}${process.env.PATH}`, // turbo calls pnpm by name
      TURBO_TELEMETRY_DISABLED: "1",
      TURBO_NO_UPDATE_NOTIFIER: "1",
    },
  });
}

if (isMain(import.meta)) build();
