// What release.mjs looks at in a native file before it may be published.
import { cudaObjects } from "./fatbin.mjs";
import { cudaArchitectures } from "./native.mjs";
import { glibcFloor, platforms } from "./platforms.mjs";
import { output } from "./sh.mjs";

/** What must not be published of a file, in words; empty if nothing. */
export function objections(part, id, file) {
  if (platforms[id].os === "win32") return windowsObjections(id, file);
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
  if (part === "cuda") {
    const code = new Set(cudaObjects(file).flat());
    const lacks = cudaArchitectures.filter((sm) => !code.has(`sm_${sm}`));
    if (lacks.length > 0) found.push(`has no code for sm_${lacks.join(", sm_")} (built for ${[...code].join(", ")})`);
  }
  return found;
}

/** What every Windows has, and the program that loads an addon. */
const ofWindows = /^(KERNEL32|msvcrt|NODE)\.(dll|exe)$/i;

function windowsObjections(id, file) {
  const text = output("objdump", ["-p", file]);
  if (text === null) return ["can't be looked at: objdump (binutils) is missing or refuses it"];
  const found = [];
  if (!text.includes(`file format ${platforms[id].machine}`)) found.push(`is for another machine than ${id}`);
  const foreign = [...text.matchAll(/DLL Name: (\S+)/g)]
    .map(([, name]) => name)
    .filter((name) => !ofWindows.test(name));
  if (foreign.length > 0) found.push(`needs ${foreign.join(", ")}, which not every Windows has`);
  return found;
}

/** Names beside numbers, and the first glibc with each. One that isn't here, GLIBC_PRIVATE say, is in none that may be asked for. */
const named = { GLIBC_ABI_DT_RELR: "2.36" };

function floorHas(version) {
  const since = /^GLIBC_\d/.test(version) ? version.slice(6) : named[version];
  return since !== undefined && !isNewer(since, glibcFloor);
}

const isNewer = (a, b) => a.localeCompare(b, "en", { numeric: true }) > 0;
