// node scripts/vitest.mjs <folder> [--long] [more vitest arguments]: one suite, with the counts line at its end.
import { join } from "node:path";
import { root, run } from "./lib/sh.mjs";

const [folder, ...rest] = process.argv.slice(2);
const long = rest.includes("--long");
run(
  process.execPath,
  [
    join(root, "node_modules/vitest/vitest.mjs"),
    "run",
    "--reporter=default",
    `--reporter=${join(root, "scripts/lib/vitest-counts.mjs")}`,
    ...rest.filter((argument) => argument !== "--long"),
  ],
  { cwd: join(root, folder), env: { ...process.env, ...(long && { TESSERA_LONG: "1" }) } },
);
