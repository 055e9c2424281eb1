/** Scripts of this folder in a Node of their own. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../../", import.meta.url));

/** What the script prints, as JSON. Throws if it fails, with what it said. */
export function runScript(
  script: string,
  args: readonly string[],
  { minutes = 2, env = {} } = {},
): Record<string, unknown> {
  const file = fileURLToPath(new URL(script, import.meta.url));
  const { status, signal, stdout, stderr } = spawnSync(process.execPath, [file, ...args], {
    encoding: "utf8",
    timeout: minutes * 60_000,
    env: { ...process.env, NO_COLOR: "1", ...env },
  });
  if (status !== 0) throw new Error(`${script} ended with ${signal ?? status}: ${stderr.slice(-2000)}`);
  return JSON.parse(stdout) as Record<string, unknown>;
}

const cuda = `${root}build/cuda/backends/cuda`;

/** The CUDA back end on the runtime that the host plays, if it is built: its library, and the environment that it wants. */
export const playedCuda = existsSync(`${cuda}/libtessera-cuda-emulated.so`)
  ? {
      library: `${cuda}/libtessera-cuda-emulated.so`,
      env: {
        LD_LIBRARY_PATH: `${cuda}/stub-driver`,
        STUB_DEVICES: "90",
        STUB_RETAIN: "0",
        TESSERA_EMULATED: "1",
      },
    }
  : undefined;
