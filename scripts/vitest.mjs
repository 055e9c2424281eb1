// node scripts/vitest.mjs <folder> [--long] [--built] [more vitest arguments]: one suite, with the counts line at its end.
//   --long     the long tests
//   --built    after the lanes that build: what this machine's compilers can build has to be there (tests/packaging)
import { join } from "node:path";
import { root, run } from "./lib/sh.mjs";

const [folder, ...rest] = process.argv.slice(2);
const settings = { "--long": "TESSERA_LONG", "--built": "EXPECT_BUILT" };
const given = Object.keys(settings).filter((flag) => rest.includes(flag));
run(
  process.execPath,
  [
    join(root, "node_modules/vitest/vitest.mjs"),
    "run",
    "--reporter=default",
    `--reporter=${join(root, "scripts/lib/vitest-counts.mjs")}`,
    ...rest.filter((argument) => !given.includes(argument)),
  ],
  {
    cwd: join(root, folder),
    env: { ...process.env, ...Object.fromEntries(given.map((flag) => [settings[flag], "1"])) },
  },
);
