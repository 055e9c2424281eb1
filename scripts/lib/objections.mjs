// What release.mjs looks at in a native file before it may be published.
import { cudaObjects } from "./fatbin.mjs";
import { cudaArchitectures } from "./native.mjs";
import { glibcFloor, parts, platforms } from "./platforms.mjs";
import { output } from "./sh.mjs";

/** What must not be published of a file, in words; empty if nothing. */
export function objections(part, id, file) {
  if (platforms[id].os === "win32") return windowsObjections(part, id, file);
  const found = [];
  const { machine, libc } = platforms[id];
  const header = output("readelf", ["-hW", file]);
  if (header === null) return ["can't be looked at: readelf (binutils) is missing or refuses it"];
  if (!header.includes(`Machine:                           ${machine}`))
    found.push(`is for another machine than ${id}`);
  const versions = [...new Set(output("readelf", ["-VW", file]).match(/\b(GLIBC|GLIBCXX|CXXABI|GCC)_[\w.]+/g) ?? [])];
  if (libc === "glibc") {
    const newer = versions.filter((version) => version.startsWith("GLIBC_") && !floorHas(version));
    if (newer.length > 0) found.push(`needs ${newer.join(", ")}; the floor is glibc ${glibcFloor}`);
  }
  const cxx = versions.filter((version) => /^(GLIBCXX|CXXABI)_/.test(version));
  if (cxx.length > 0) found.push(`needs a C++ library of its system: ${cxx.join(", ")}`);
  found.push(...weaknesses(part, file));
  if (part === "cuda") {
    const code = new Set(cudaObjects(file).flat());
    const lacks = cudaArchitectures.filter((sm) => !code.has(`sm_${sm}`));
    if (lacks.length > 0) found.push(`has no code for sm_${lacks.join(", sm_")} (built for ${[...code].join(", ")})`);
  }
  return found;
}

/** Where an ELF file isn't hardened, in words: also one for another machine, which this one can't load. */
export function weaknesses(part, file) {
  const [segments, dynamic, symbols] = ["-lW", "-dW", "--dyn-syms"].map((what) =>
    output("readelf", [what, "-W", file]),
  );
  if (segments === null) return ["can't be looked at: readelf (binutils) is missing or refuses it"];
  const found = [];
  if (!segments.includes("GNU_RELRO")) found.push("has writable relocations (no RELRO)");
  if (!/BIND_NOW|\(FLAGS_1\).*\bNOW\b/.test(dynamic)) found.push("binds its symbols late (no -z now)");
  if (!/GNU_STACK .* RW /.test(segments)) found.push("has an executable stack");
  // Number, value, size, type, binding, visibility, section, name.
  const named = [...symbols.matchAll(/^ *\d+: .* (GLOBAL|WEAK|UNIQUE) +\w+ +(\w+) ([^\s@]+)/gm)];
  if (!named.some(([, , section, name]) => section === "UND" && name === "__stack_chk_fail"))
    found.push("doesn't guard its stack");
  const shown = named.filter(([, , section]) => section !== "UND").map(([, , , name]) => name);
  return [...found, ...exportObjections(part, shown)];
}

function exportObjections(part, shown) {
  const extra = shown.filter((name) => !parts[part].exports.includes(name));
  const lacking = parts[part].exports.filter((name) => !shown.includes(name));
  return [
    ...(extra.length > 0 ? [`exports ${extra.slice(0, 3).join(", ")}${extra.length > 3 ? ", …" : ""}`] : []),
    ...(lacking.length > 0 ? [`doesn't export ${lacking.join(", ")}`] : []),
  ];
}

/** Of a DLL's characteristics: what Windows is to do about it. */
const guards = { 32: "64-bit address randomisation", 64: "address randomisation", 256: "no-execute" };

/** What every Windows has, and the program that loads an addon. */
const ofWindows = /^(KERNEL32|msvcrt|NODE)\.(dll|exe)$/i;

function windowsObjections(part, id, file) {
  const text = output("objdump", ["-p", file]);
  if (text === null) return ["can't be looked at: objdump (binutils) is missing or refuses it"];
  const found = [];
  if (!text.includes(`file format ${platforms[id].machine}`)) found.push(`is for another machine than ${id}`);
  const foreign = [...text.matchAll(/DLL Name: (\S+)/g)]
    .map(([, name]) => name)
    .filter((name) => !ofWindows.test(name));
  if (foreign.length > 0) found.push(`needs ${foreign.join(", ")}, which not every Windows has`);
  const characteristics = Number.parseInt(/^DllCharacteristics\s+([\da-f]+)/m.exec(text)?.[1] ?? "0", 16);
  for (const [bit, what] of Object.entries(guards)) if (!(characteristics & Number(bit))) found.push(`forgoes ${what}`);
  const table = text.split("[Ordinal/Name Pointer] Table")[1] ?? "";
  const names = [...table.matchAll(/^\s+\[ *\d+\].* (\S+)$/gm)].map(([, name]) => name);
  return [...found, ...exportObjections(part, names)];
}

/** Names beside numbers, and the first glibc with each. One that isn't here, GLIBC_PRIVATE say, is in none that may be asked for. */
const named = { GLIBC_ABI_DT_RELR: "2.36" };

function floorHas(version) {
  const since = /^GLIBC_\d/.test(version) ? version.slice(6) : named[version];
  return since !== undefined && !isNewer(since, glibcFloor);
}

const isNewer = (a, b) => a.localeCompare(b, "en", { numeric: true }) > 0;
