/** Every state that `tessera doctor` can find a back end in, out of fakes; and the loader's error says the same. */
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { openEngine } from "@tessera/core";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { scratch, tessera } from "./helpers.js";

const here = dirname(fileURLToPath(import.meta.url));
const folder = scratch();
const include = join(here, "../../core/include");

/** A folder for TESSERA_BACKEND_PATH with a fake libtessera-cuda.so, compiled with these flags. */
function fake(...flags: string[]): string {
  const at = join(folder, flags.join("").replaceAll(/\W+/g, "_") || "plain");
  const file = join(at, "libtessera-cuda.so");
  if (existsSync(file)) return at;
  mkdirSync(at, { recursive: true });
  const options = ["-std=c11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", `-I${include}`, ...flags];
  execFileSync(process.env.CC ?? "cc", [...options, join(here, "fakes/backend.c"), "-o", file]);
  return at;
}

/** A back end that asks for glibc 2.99: linked with a C library that plays it. */
function ofTheFuture(): string {
  const at = join(folder, "future-libc");
  mkdirSync(at, { recursive: true });
  writeFileSync(join(at, "libc.c"), "int tessera_of_the_future(void) { return 0; }\n");
  writeFileSync(join(at, "libc.map"), "GLIBC_2.99 { global: tessera_of_the_future; };\n");
  const script = `-Wl,--version-script=${join(at, "libc.map")}`;
  const flags = ["-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libc.so.6", script];
  execFileSync("cc", [...flags, join(at, "libc.c"), "-o", join(at, "libfuture.so")]);
  return fake("-DNEEDS_GLIBC", "-Wl,--no-as-needed", join(at, "libfuture.so"));
}

interface Found {
  readonly backend: string;
  readonly state: string;
  readonly cause: string;
  readonly fixes: readonly string[];
  readonly devices: readonly { readonly state: string; readonly reason: string; readonly fix: string }[];
}

async function cuda(): Promise<{ found: Found; text: string }> {
  const { out } = await tessera("doctor", "--json");
  const { backends } = JSON.parse(out) as { backends: Found[] };
  const found = backends.find(({ backend }) => backend === "cuda")!;
  return { found, text: (await tessera("doctor")).out };
}

const steps = (message: string) => [...message.matchAll(/^ {2}\d+\. (.*)$/gm)].map(([, step]) => step);

/** What `openEngine` throws for the back end; its numbered steps are the doctor's. */
async function sameFromTheLoader(found: Found, code: string): Promise<void> {
  const error = await openEngine({ backend: "cuda" }).then(
    () => undefined,
    (thrown) => thrown,
  );
  expect(error).toMatchObject({ code });
  expect(steps(error.message)).toEqual(found.fixes);
}

beforeEach(() => {
  vi.stubEnv("TESSERA_BACKEND", "");
  vi.stubEnv("TESSERA_BACKEND_PATH", "");
});
afterEach(() => vi.unstubAllEnvs());

// Number of tsr_probe_state, its name, the error code that it becomes, cause, fixes: words as the CUDA back end has them.
const told: [number, string, string, string, string[]][] = [
  [1, "driver-missing", "device-unavailable", "libcuda.so.1 can't be opened", ["install the driver", "mount it"]],
  [2, "driver-too-old", "device-unavailable", "found CUDA 11.8, needs 12.0", ["install driver 525 or newer"]],
  [3, "runtime-missing", "device-unavailable", "none of libamdhip64.so.7 is found", ["install ROCm 6"]],
  [4, "no-device", "device-unavailable", "the driver shows no GPU", ["see whether nvidia-smi shows one"]],
  [5, "hidden-by-environment", "device-unavailable", 'CUDA_VISIBLE_DEVICES is ""', ["unset CUDA_VISIBLE_DEVICES"]],
  [6, "arch-not-in-build", "device-unavailable", "found sm_103, built for sm_80, sm_90", ["build for sm_103"]],
  [7, "out-of-memory", "out-of-memory", "the driver has no memory left", ["end other programs"]],
  [8, "error", "device-unavailable", "cuInit: 999", ["restart the machine"]],
];

describe.skipIf(process.platform !== "linux")("a back end that can't be used", () => {
  it.each(told)("says so itself: %i, %s", async (number, state, code, reason, fixes) => {
    vi.stubEnv("TESSERA_BACKEND_PATH", fake());
    vi.stubEnv("CUDA_FAKE", `${number}|0|${reason}|${fixes.join("; or ")}`);
    const { found, text } = await cuda();
    expect(found).toMatchObject({ state, cause: reason, fixes });
    expect(text).toContain(`  cuda 9.9.9: ${state}\n`);
    expect(text).toContain(`    cause    ${reason}\n`);
    fixes.forEach((fix, n) => void expect(text).toContain(`    fix ${n + 1}    ${fix}\n`));
    await sameFromTheLoader(found, code);
  });

  it("arch-not-in-build of one device, beside the list that the build is for", async () => {
    vi.stubEnv("TESSERA_BACKEND_PATH", fake());
    vi.stubEnv("CUDA_FAKE", "0|1||");
    vi.stubEnv("CUDA_FAKE_DEVICE", "6||found sm_103, built for sm_80, sm_90|build for sm_103");
    const { found, text } = await cuda();
    expect(found.devices[0]).toMatchObject({ state: "arch-not-in-build", fix: "build for sm_103" });
    expect(text).toContain(
      "device 0 Fake GPU (sm_103): arch-not-in-build\n      cause  found sm_103, built for sm_80, sm_90",
    );
    await expect(openEngine({ backend: "cuda" })).rejects.toMatchObject({
      code: "device-unavailable",
      message: expect.stringContaining("found sm_103, built for sm_80, sm_90\nWhat to do:\n  1. build for sm_103"),
    });
  });

  it.each([
    ["crash", "crashed", /its probe crashed: SIGSEGV/, /update the driver/],
    ["exit", "crashed", /its probe crashed: exit code 9/, /update the driver/],
    ["hang", "timed-out", /gave no answer within 1500 ms/, /nvidia-smi/],
    ["fail", "error", /a fake does nothing/, undefined],
  ])("in its probe: %s is %s", async (order, state, cause, fix) => {
    vi.stubEnv("TESSERA_PROBE_TIMEOUT_MS", "1500");
    vi.stubEnv("TESSERA_BACKEND_PATH", fake());
    vi.stubEnv("CUDA_FAKE", order);
    const { found } = await cuda();
    expect(found).toMatchObject({ state, cause: expect.stringMatching(cause) });
    if (fix) expect(found.fixes[0]).toMatch(fix);
    await sameFromTheLoader(found, "device-unavailable");
  });

  it.each([
    [
      "abi-mismatch",
      "-DABI=7",
      "abi-mismatch",
      /speaks version 7 .* speaks version 1/,
      /^run `npm install @tessera\/core@\S+ @tessera\/cuda@\S+`$/,
    ],
    [
      "not-a-backend",
      "-DNO_ENTRY",
      "backend-missing",
      /it has no symbol tsr_backend_entry/,
      /exports tsr_backend_entry/,
    ],
  ])("in its library: %s", async (state, flag, code, cause, fix) => {
    vi.stubEnv("TESSERA_BACKEND_PATH", fake(flag));
    const { found } = await cuda();
    expect(found).toMatchObject({ state, cause: expect.stringMatching(cause) });
    expect(found.fixes[0]).toMatch(fix);
    await sameFromTheLoader(found, code);
  });

  it("wrong-libc: what it needs and what is here", async () => {
    vi.stubEnv("TESSERA_BACKEND_PATH", ofTheFuture());
    const { found } = await cuda();
    expect(found.state).toBe("wrong-libc");
    expect(found.cause).toMatch(/needs glibc 2\.99 or newer, this system has \d+\.\d+$/);
    expect(found.fixes[0]).toBe("use a system with glibc 2.99 or newer");
    await sameFromTheLoader(found, "backend-missing");
  });

  it.each([
    ["five bytes", "12345", /file too short/],
    ["200 zeros", "\0".repeat(200), /invalid ELF header/],
  ])("load-failed: %s in its place", async (name, content, cause) => {
    const at = join(folder, name);
    mkdirSync(at, { recursive: true });
    writeFileSync(join(at, "libtessera-cuda.so"), content);
    vi.stubEnv("TESSERA_BACKEND_PATH", at);
    const { found } = await cuda();
    expect(found).toMatchObject({ state: "load-failed", cause: expect.stringMatching(cause) });
    expect(found.fixes).toEqual(["delete node_modules and run `npm install` again", "build it again, if you built it"]);
    await sameFromTheLoader(found, "backend-missing");
  });

  it("load-failed: a library that it needs isn't there", async () => {
    const at = join(folder, "needs");
    mkdirSync(at, { recursive: true });
    writeFileSync(join(at, "gone.c"), "int gone(void) { return 0; }\n");
    const gone = join(at, "libgone.so.3");
    execFileSync("cc", ["-shared", "-fPIC", "-Wl,-soname,libgone.so.3", join(at, "gone.c"), "-o", gone]);
    vi.stubEnv("TESSERA_BACKEND_PATH", fake("-Wl,--no-as-needed", gone));
    const { found } = await cuda();
    expect(found).toMatchObject({ state: "load-failed", cause: expect.stringContaining("libgone.so.3: cannot open") });
    expect(found.fixes).toEqual([
      "install what the message names",
      expect.stringMatching(/^run `npm install @tessera\/cuda@\S+` again$/),
    ]);
    await sameFromTheLoader(found, "backend-missing");
  });
});

describe.skipIf(process.platform !== "linux")("a damaged library", () => {
  function copy(name: string): string {
    const at = join(folder, name);
    mkdirSync(at, { recursive: true });
    copyFileSync(join(fake(), "libtessera-cuda.so"), join(at, "libtessera-cuda.so"));
    return join(at, "libtessera-cuda.so");
  }
  async function damaged(file: string, cause: RegExp): Promise<void> {
    vi.stubEnv("TESSERA_BACKEND_PATH", dirname(file));
    const { found } = await cuda();
    expect(found).toMatchObject({ state: "load-failed", cause: expect.stringMatching(cause) });
    expect(found.fixes[0]).toBe("delete node_modules and run `npm install` again");
    await sameFromTheLoader(found, "backend-missing");
  }
  const integrity = (file: string, bytes: number, sha256: string) =>
    writeFileSync(join(dirname(file), "integrity.json"), JSON.stringify({ "libtessera-cuda.so": { bytes, sha256 } }));

  it("truncated: told before it is loaded, by its own header", async () => {
    const file = copy("cut");
    truncateSync(file, readFileSync(file).length - 2000);
    await damaged(file, /libtessera-cuda\.so is truncated: it has \d+ bytes, by its header it should have \d+/);
  });
  it("empty", async () => {
    const file = copy("empty");
    truncateSync(file, 0);
    await damaged(file, /libtessera-cuda\.so is empty/);
  });
  it("of another size than was published", async () => {
    const file = copy("size");
    integrity(file, 12, "");
    await damaged(file, /is damaged: it has \d+ bytes, 12 were published/);
  });
  it("changed: its SHA-256 isn't what was published", async () => {
    const file = copy("changed");
    const bytes = readFileSync(file);
    integrity(file, bytes.length, "0".repeat(64));
    await damaged(file, /is damaged or was changed: its SHA-256 is [0-9a-f]{64}, 0{64} was published/);
  });
  it("for another machine", async () => {
    const file = copy("machine");
    const bytes = readFileSync(file);
    bytes.writeUInt16LE(process.arch === "arm64" ? 62 : 183, 18);
    writeFileSync(file, bytes);
    await damaged(
      file,
      new RegExp(`is built for ${process.arch === "arm64" ? "x64" : "arm64"}, this process is ${process.arch}`),
    );
  });
});

describe.skipIf(process.platform !== "linux")("what was installed", () => {
  /** A program's folder with packages as given: name → [version, has its library]. */
  function installed(name: string, version: string, library: boolean, platform = "linux-x64-gnu"): string {
    const at = join(folder, name);
    const parent = join(at, "node_modules/@tessera/cuda");
    mkdirSync(parent, { recursive: true });
    const optionalDependencies = { [`@tessera/cuda-${platform}`]: version };
    writeFileSync(
      join(parent, "package.json"),
      JSON.stringify({ name: "@tessera/cuda", version, optionalDependencies }),
    );
    writeFileSync(join(parent, "index.js"), readFileSync(join(here, "../../../backends/cuda/index.cjs")));
    if (!library) return at;
    const own = join(at, `node_modules/@tessera/cuda-${platform}`);
    mkdirSync(own, { recursive: true });
    writeFileSync(join(own, "package.json"), JSON.stringify({ name: `@tessera/cuda-${platform}`, version }));
    copyFileSync(join(fake(), "libtessera-cuda.so"), join(own, "libtessera-cuda.so"));
    return at;
  }
  const bin = join(here, "../bin/tessera.js");
  const doctor = (cwd: string, ...nodeArgs: string[]) => inspected(cwd, "cuda", ...nodeArgs);
  function inspected(cwd: string, name: string, ...nodeArgs: string[]): Found {
    const env = { ...process.env, NODE_PATH: "", CUDA_FAKE: "0|1||" };
    const { stdout, stderr } = spawnSync(process.execPath, [...nodeArgs, bin, "doctor", "--json"], {
      cwd,
      env,
      encoding: "utf8",
    });
    expect(stderr).toBe("");
    return JSON.parse(stdout).backends.find(({ backend }: Found) => backend === name);
  }
  const core = JSON.parse(readFileSync(join(here, "../../core/package.json"), "utf8")).version as string;
  const platform = `linux-${process.arch}-gnu`;

  it("nothing: the exact command", () => {
    mkdirSync(join(folder, "bare"), { recursive: true });
    const { state, cause, fixes } = doctor(join(folder, "bare"));
    expect({ state, cause }).toEqual({ state: "package-missing", cause: "the package @tessera/cuda is not installed" });
    expect(fixes[0]).toBe(`run \`npm install @tessera/cuda@${core}\``);
  });
  it("nothing, and there is no package for this platform: not the command that would bring none", () => {
    mkdirSync(join(folder, "elsewhere"), { recursive: true });
    const elsewhere = 'data:text/javascript,Object.defineProperty(process,"arch",{value:"s390x"})';
    const { state, cause, fixes } = doctor(join(folder, "elsewhere"), `--import=${elsewhere}`);
    expect(state).toBe("package-missing");
    expect(cause).toContain("is not installed, and has no library for linux-s390x-gnu, only for linux-x64-gnu");
    expect(fixes[0]).toContain("compute in plain TypeScript");
    expect(fixes.join()).not.toContain("npm install");
  });
  it("all of it", () => {
    expect(doctor(installed("whole", core, true, platform)).state).toBe("usable");
  });
  it("without the platform's package", () => {
    const { state, cause, fixes } = doctor(installed("half", core, false, platform));
    expect(state).toBe("package-missing");
    expect(cause).toContain(`is installed without @tessera/cuda-${platform}`);
    expect(fixes[0]).toMatch(new RegExp(`^run \`npm install --include=optional @tessera/cuda@${core}\``));
  });
  it("for another platform than this", () => {
    const { state, cause, fixes } = doctor(installed("other", core, false, "darwin-arm64"));
    expect({ state, fix: fixes[0] }).toEqual({
      state: "package-missing",
      fix: expect.stringContaining("compute in plain TypeScript"), // which needs nothing but what is installed
    });
    expect(fixes[1]).toMatch(/^build libtessera-cuda\.so from Tessera's sources .*TESSERA_BACKEND_PATH/);
    expect(fixes).toHaveLength(2);
    expect(cause).toContain(`has no library for ${platform}, only for darwin-arm64`);
  });
  it("in another version than core's", () => {
    const { state, cause, fixes } = doctor(installed("old", "0.0.0-old", true, platform));
    expect(state).toBe("version-mismatch");
    expect(cause).toContain(`is there as @tessera/cuda 0.0.0-old, beside @tessera/core ${core}`);
    expect(fixes).toEqual([`run \`npm install @tessera/core@${core} @tessera/cuda@${core}\``]);
  });
  it("a back end in JavaScript in another version than core's, which isn't loaded", () => {
    const at = join(folder, "old-module");
    const parent = join(at, "node_modules/@tessera/webgpu");
    mkdirSync(parent, { recursive: true });
    writeFileSync(
      join(parent, "package.json"),
      JSON.stringify({ name: "@tessera/webgpu", version: "0.0.0-old", main: "index.js" }),
    );
    writeFileSync(join(parent, "index.js"), "console.log('loaded'); exports.backend = {};");
    const cause = `is there as @tessera/webgpu 0.0.0-old, beside @tessera/core ${core}: versions must be the same`;
    const fix = `run \`npm install @tessera/webgpu@${core} webgpu@0.6.2\``;
    const found = inspected(at, "webgpu");
    expect(found.state).toBe("version-mismatch");
    expect(found.cause).toContain(cause);
    expect(found.fixes[0]).toBe(fix);
    const program = `import(process.env.CORE).then(({ openEngine }) => openEngine({ backend: "webgpu" })).then(
      () => console.log("opened"), ({ code, message }) => console.log(code + ": " + message))`;
    const { stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", program], {
      cwd: at,
      env: { ...process.env, NODE_PATH: "", CORE: pathToFileURL(join(here, "../../core/dist/index.js")).href },
      encoding: "utf8",
    });
    expect(stdout).toMatch(/^abi-mismatch: /);
    expect(stdout).toContain(cause);
    expect(stdout).toContain(fix);
  });
  it("on musl", () => {
    const { state, cause, fixes } = doctor(
      installed("musl", core, false, platform),
      "--require",
      join(here, "fakes/musl.cjs"),
    );
    expect(state).toBe("wrong-libc");
    expect(cause).toContain(`has no library for linux-${process.arch}-musl, only for ${platform}`);
    expect(fixes[0]).toContain("node:22-slim in place of node:22-alpine");
  });
});

describe("LD_LIBRARY_PATH", () => {
  it("libraries of GPU vendors in it are named, each with what it does", async () => {
    const at = join(folder, "vendor");
    mkdirSync(at, { recursive: true });
    for (const name of ["libcudart.so.11.0", "libamdhip64.so.5", "libcuda.so.1", "libz.so"])
      writeFileSync(join(at, name), "");
    vi.stubEnv("LD_LIBRARY_PATH", `/nowhere:${at}`);
    const { out } = await tessera("doctor");
    expect(out).toContain(`  ${at}/libcudart.so.11.0\n    is not used: the CUDA back end carries its own CUDA runtime`);
    expect(out).toContain(`  ${at}/libamdhip64.so.5\n    is taken for the ROCm runtime, before the system's`);
    expect(out).toContain(`  ${at}/libcuda.so.1\n    is taken for the NVIDIA driver, before the system's`);
    expect(out).not.toContain("libz.so");
    const { shadows } = JSON.parse((await tessera("doctor", "--json")).out);
    expect(shadows).toHaveLength(3);
  });
});
