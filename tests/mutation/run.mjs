// Does the conformance table bite? Builds the CPU back end from a copy of its sources with one defect at a time
// (mutations.mjs) and expects `tessera conform` to refuse each; a build without a defect has to pass.
//
//   node tests/mutation/run.mjs            the few of `npm test`
//   node tests/mutation/run.mjs --all      all of them
//   TESSERA_FUZZ_SEED=7 node tests/mutation/run.mjs --third     a third of the others than the few, drawn by the seed
//   node tests/mutation/run.mjs NAME …     some of them        --list   their names        --keep   leave the copy there
import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { mutations } from "./mutations.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const args = process.argv.slice(2);
const flag = (name) => args.includes(name);
const named = args.filter((argument) => !argument.startsWith("--"));
const unknown = named.filter((name) => !mutations.some((mutation) => mutation.name === name));

if (flag("--list")) {
  for (const { name, breaks, often } of mutations) console.log(`${name}${often ? " *" : ""}: ${breaks}`);
  process.exit(0);
}
if (unknown.length > 0) {
  console.error(`no mutation ${unknown.join(", ")}; --list shows them`);
  process.exit(2);
}
const seed = Number(process.env.TESSERA_FUZZ_SEED ?? Date.now());
const others = mutations.filter(({ often }) => !often);
const third = flag("--third") ? others.filter((_, index) => (index + seed) % 3 === 0) : [];
const chosen = mutations.filter((mutation) => {
  if (named.length > 0) return named.includes(mutation.name);
  return flag("--third") ? third.includes(mutation) : flag("--all") || mutation.often;
});

const copy = mkdtempSync(join(tmpdir(), "tessera-mutation-"));
const compiler = process.env.CXX ?? "c++";
const avx512 = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mf16c"];
const isaFlags = {
  portable: [],
  avx2: ["-mavx2", "-mfma", "-mf16c"],
  neon: [],
  avx512bf16: [...avx512, "-mavx512bf16"],
  avx2int8: ["-mavx2", "-mfma", "-mf16c"],
};
// Sets that only some processors have are built where a chosen mutation needs them.
const flagOfSet = { avx512bf16: "avx512_bf16", avx2int8: "avx2" };
const cpuFlags = existsSync("/proc/cpuinfo") ? readFileSync("/proc/cpuinfo", "utf8").split(/\s+/) : [];
const lacking = ({ set }) => set !== undefined && !cpuFlags.includes(flagOfSet[set]);
const isas = [
  ...({ x64: ["portable", "avx2"], arm64: ["portable", "neon"] }[process.arch] ?? ["portable"]),
  ...new Set(chosen.filter((mutation) => mutation.set && !lacking(mutation)).map(({ set }) => set)),
];
// A conforming table takes seconds; a loop that a defect made endless is found out, too.
const patience = 300_000;

/** Runs a program; resolves to its exit code (null if it was ended) and its output. */
function run(program, parameters, milliseconds = patience) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, parameters, {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, NO_COLOR: "1" },
    });
    let text = "";
    const keep = (chunk) => {
      text += chunk;
    };
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    const timer = setTimeout(() => child.kill("SIGKILL"), milliseconds);
    child.once("error", reject);
    child.once("close", (code) => {
      clearTimeout(timer);
      resolve({ code, text });
    });
  });
}

const objectOf = (unit, folder) => join(folder, `${unit.file.replaceAll(sep, "-")}.o`);

const listing = (folder, end) =>
  readdirSync(join(copy, folder))
    .filter((file) => file.endsWith(end))
    .map((file) => join(folder, file));

/** Every source file of the library with its flags: what CMakeLists.txt says, optimised only where it pays. */
function units() {
  const version = JSON.parse(readFileSync(join(root, "backends/cpu/package.json"), "utf8")).version;
  const common = ["-std=c++17", "-fPIC", "-fvisibility=hidden", "-pthread", `-DTSR_VERSION="${version}"`]
    .concat(isas.map((isa) => `-DTSR_HAVE_${isa.toUpperCase()}=1`))
    .concat(
      ["packages/core/include", "backends/common/include", "backends/cpu/src"].map((path) => `-I${join(copy, path)}`),
    );
  return [
    ...listing("backends/common/src", ".cpp").map((file) => ({ file, flags: [...common, "-ffp-contract=off"] })),
    ...listing("backends/cpu/src", ".cpp").map((file) => ({ file, flags: common })),
    ...isas.flatMap((isa) =>
      listing("backends/cpu/src/isa", `_${isa}.cpp`).map((file) => ({
        file,
        flags: ["-O1", ...common, ...isaFlags[isa]],
      })),
    ),
  ];
}

/** Compiles units into a folder, a few at a time. Returns the compiler's complaint, or "". */
async function compile(list, folder) {
  mkdirSync(folder, { recursive: true });
  const queue = [...list];
  let complaint = "";
  const worker = async () => {
    for (let unit = queue.shift(); unit && complaint === ""; unit = queue.shift()) {
      const object = objectOf(unit, folder);
      const { code, text } = await run(compiler, [...unit.flags, "-MMD", "-c", join(copy, unit.file), "-o", object]);
      if (code !== 0) complaint = text.slice(0, 2000) || `${compiler} ended with ${code}`;
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  return complaint;
}

/** Files of the copy that a unit includes, out of the compiler's dependency file. */
function dependencies(unit, folder) {
  const text = readFileSync(objectOf(unit, folder).replace(/o$/, "d"), "utf8");
  return new Set(
    text
      .split(/[\s\\]+/)
      .filter((path) => path.startsWith(copy))
      .map((path) => relative(copy, path)),
  );
}

async function link(objects, library) {
  const script = process.platform === "linux" ? [`-Wl,--version-script=${join(root, "cmake/backend.map")}`] : [];
  const { code, text } = await run(compiler, ["-shared", "-pthread", ...script, ...objects, "-o", library]);
  return code === 0 ? "" : text.slice(0, 2000);
}

/** "green", "red" and why, or "broken": the runner itself failed. */
async function conform(library, options) {
  const cli = join(root, "packages/cli/bin/tessera.js");
  const { code, text } = await run(process.execPath, [cli, "conform", library, "--quick", ...options]);
  if (code === 0) return { color: "green", why: "" };
  const why =
    text.split("\n").find((line) => /FAIL|✗|must be|crash|ended/.test(line)) ?? text.trim().split("\n")[0] ?? "";
  if (code === 1) return { color: "red", why };
  return code === null
    ? { color: "red", why: "ended after its time limit" }
    : { color: "broken", why: text.trim().slice(-1000) };
}

/** Why a mutation doesn't fit the sources any more, or "". Checked for all of them, always: it costs nothing. */
function misfit({ file, find }) {
  const places = readFileSync(join(copy, file), "utf8").split(find).length - 1;
  return places === 1 ? "" : `its text occurs ${places} times in ${file}, must be once`;
}

async function tryMutation(mutation, all, control) {
  const path = join(copy, mutation.file);
  const source = readFileSync(path, "utf8");
  const folder = join(copy, "build", mutation.name);
  writeFileSync(
    path,
    source.replace(mutation.find, () => mutation.replace),
  );
  try {
    const affected = all.filter((unit) => control.uses.get(unit).has(mutation.file));
    const complaint = await compile(affected, folder);
    if (complaint) return { verdict: "ERROR", why: `does not compile:\n${complaint}` };
    const objects = all.map((unit) => objectOf(unit, affected.includes(unit) ? folder : control.folder));
    const library = join(folder, "libtessera-cpu.so");
    const problem = await link(objects, library);
    if (problem) return { verdict: "ERROR", why: `does not link:\n${problem}` };
    let result = await conform(library, ["--filter", mutation.cases, "--layout", "contiguous"]);
    if (result.color === "green") result = await conform(library, []);
    if (result.color === "red") return { verdict: "caught", why: result.why };
    return { verdict: result.color === "green" ? "MISSED" : "ERROR", why: result.why };
  } finally {
    writeFileSync(path, source);
    if (!flag("--keep")) rmSync(folder, { recursive: true, force: true });
  }
}

const counts = { passed: 0, failed: 0, skipped: 0 };
const started = Date.now();
const say = (good, text) => {
  counts[good ? "passed" : "failed"]++;
  console.log(text);
};
try {
  for (const folder of ["backends/common", "backends/cpu", "packages/core/include"]) {
    cpSync(join(root, folder), join(copy, folder), {
      recursive: true,
      filter: (path) => !/node_modules|\/lib(\/|$)|build/.test(path),
    });
  }
  const stale = mutations.filter((mutation) => misfit(mutation) !== "");
  for (const mutation of stale) say(false, `ERROR ${mutation.name}: ${misfit(mutation)}`);
  const all = units();
  const folder = join(copy, "build", "control");
  const complaint =
    (await compile(all, folder)) ||
    (await link(
      all.map((unit) => objectOf(unit, folder)),
      join(folder, "libtessera-cpu.so"),
    ));
  if (complaint) {
    say(false, `control: does not build\n${complaint}`);
  } else {
    const built = ((Date.now() - started) / 1000).toFixed(0);
    const uses = new Map(all.map((unit) => [unit, dependencies(unit, folder)]));
    const result = await conform(
      join(folder, "libtessera-cpu.so"),
      flag("--all") ? [] : ["--layout", "contiguous", "--filter", chosen.map(({ cases }) => cases).join("|")],
    );
    say(
      result.color === "green",
      `control: ${result.color === "green" ? "green" : `${result.color}, must be green. ${result.why}`} (built in ${built} s)`,
    );
    for (const mutation of chosen.filter((one) => !stale.includes(one))) {
      if (lacking(mutation)) {
        counts.skipped++;
        console.log(`skipped ${mutation.name}: needs a processor with ${flagOfSet[mutation.set]}`);
        continue;
      }
      const begin = Date.now();
      const { verdict, why } = await tryMutation(mutation, all, { folder, uses });
      const seconds = ((Date.now() - begin) / 1000).toFixed(0);
      say(
        verdict === "caught",
        `${verdict} ${mutation.name} (${mutation.breaks}) ${seconds} s${why ? `\n    ${why.trim().slice(0, 300)}` : ""}`,
      );
    }
  }
} finally {
  if (flag("--keep")) console.log(`kept: ${copy}`);
  else rmSync(copy, { recursive: true, force: true });
}
console.log(`${chosen.length} of ${mutations.length} mutations, ${((Date.now() - started) / 1000).toFixed(0)} s`);
console.log(`::tessera ${JSON.stringify(counts)}`);
process.exitCode = counts.failed > 0 ? 1 : 0;
