// node backends/webgpu/test/run.mjs [--full|--part] [--slice 1/4] [adapter...]: the tests that need an adapter, on each of those that are there,
// and in Chromium; --full with the whole table (--slice 1/4: every fourth case of it, and no other test), --part with as little of it as CI has time
// for. Dawn is installed into test/dawn first.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { line } from "../../../scripts/lib/counts.mjs";
import { adapters } from "./adapters.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../../..");
const dawn = join(here, "dawn");
const args = process.argv.slice(2);
const full = args.includes("--full");
const part = args.includes("--part");
const slice = args.includes("--slice") ? args[args.indexOf("--slice") + 1] : "";
const wanted = args.filter((one) => !one.startsWith("--") && one !== slice);

function skip(reason) {
  console.log(line({ passed: 0, failed: 0, skipped: 1, reasons: { [reason]: 1 } }));
}

if (!existsSync(join(dawn, "node_modules/webgpu"))) {
  const { status } = spawnSync("npm", ["ci", "--no-audit", "--no-fund", "--silent"], { cwd: dawn, stdio: "inherit" });
  if (status !== 0) console.log(`npm ci in ${dawn} failed: no Dawn`);
}

let failed = false;
for (const { name, env, missing, named } of [...adapters(), { name: "chromium", env: {} }]) {
  if (wanted.length > 0 || named ? !wanted.includes(name) : false) continue;
  const absent =
    name !== "chromium" && !existsSync(join(dawn, "node_modules/webgpu"))
      ? "the package webgpu can't be installed"
      : missing;
  if (absent) {
    skip(`${name}: ${absent}`);
    continue;
  }
  console.log(`\n== ${name}`);
  const files =
    name === "chromium"
      ? ["browser"]
      : slice
        ? ["table"]
        : ["engine", "table", ...(name === "swiftshader" ? ["mutation"] : [])];
  const suite = [join(root, "scripts/vitest.mjs"), "backends/webgpu", ...files, "--long"];
  const { status } = spawnSync(process.execPath, suite, {
    cwd: root,
    stdio: "inherit",
    env: {
      ...process.env,
      ...env,
      TESSERA_WEBGPU_ADAPTER: name,
      TESSERA_WEBGPU_FULL: full ? "1" : "",
      TESSERA_WEBGPU_PART: part ? "1" : "",
      TESSERA_WEBGPU_SLICE: slice,
    },
  });
  failed ||= status !== 0;
}
process.exitCode = failed ? 1 : 0;
