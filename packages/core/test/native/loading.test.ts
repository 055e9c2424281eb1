import { mkdirSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { type BackendName, backendNames, loadBackend } from "../../src/backends.js";
import { TesseraError } from "../../src/error.js";
import { locate } from "../../src/native/locate.js";
import { nativeLibrary } from "../../src/native/native-library.js";
import { version } from "../../src/version.js";
import { mock, mockBackend, scratchFile, small } from "./support.js";

async function failure(library: string): Promise<TesseraError> {
  const error = await loadBackend({ library }).then(
    () => undefined,
    (thrown) => thrown,
  );
  expect(error).toBeInstanceOf(TesseraError);
  return error;
}

describe("a library that can't be used says why", () => {
  it("missing file", async () => {
    const { code, message } = await failure("/nowhere/libtessera-x.so");
    expect(code).toBe("backend-missing");
    expect(message).toContain("library: /nowhere/libtessera-x.so: does not exist");
    expect(message).toContain("1. give the absolute path of a file that exists");
  });
  it("relative path", async () => {
    const { code, message } = await failure("libtessera-x.so");
    expect(code).toBe("backend-missing");
    expect(message).toContain("is not an absolute path");
  });
  it("a folder", async () => {
    expect((await failure("/tmp")).message).toContain("/tmp is not a file");
  });
  it("not a shared library", async () => {
    const { code, message } = await failure(scratchFile("text.so", "hello\n"));
    expect(code).toBe("backend-missing");
    expect(message).toMatch(/can't be loaded: .*text\.so: (file too short|invalid ELF header)/);
  });
  it("unresolved symbol: the dynamic linker's own text", async () => {
    expect((await failure(mock("-DMOCK_NEEDS_SYMBOL"))).message).toMatch(/can't be loaded: .*tessera_no_such_symbol/);
  });
  it("no tsr_backend_entry", async () => {
    const { code, message } = await failure(mock("-DMOCK_NO_ENTRY"));
    expect(code).toBe("backend-missing");
    expect(message).toContain("is not a Tessera back end: it has no symbol tsr_backend_entry");
  });
  it("another ABI version: both are named", async () => {
    const { code, message } = await failure(mock("-DMOCK_ABI=7"));
    expect(code).toBe("abi-mismatch");
    expect(message).toContain("speaks version 7 of the contract (tessera.h), this @tessera/core speaks version 1");
  });
  it("an entry that never answers", async () => {
    const { code, message } = await failure(mock("-DMOCK_SPEAKS_NOTHING"));
    expect(code).toBe("abi-mismatch");
    expect(message).toContain("version (none up to 64)");
  });
  it("a table that is too short", async () => {
    const { code, message } = await failure(mock("-DMOCK_SHORT"));
    expect(code).toBe("backend-missing");
    expect(message).toMatch(/its table is too short, \d+ bytes; version 1 of the contract has \d+/);
  });
  it("a table with a hole", async () => {
    expect((await failure(mock("-DMOCK_HOLE"))).message).toMatch(/function \d+ of its table is NULL/);
  });
  it.each([
    [1, "abi-mismatch", /speaks version 9 of the contract.* speaks version 1/],
    [2, "backend-missing", /its table is 4 bytes; version 1 of the contract has \d+/],
    [10, "backend-missing", /its table has no name or no version/],
  ])("a table that lies: %i", async (lie, expected, text) => {
    const { code, message } = await failure(mock(`-DMOCK_LIES=${lie}`));
    expect(code).toBe(expected);
    expect(message).toMatch(text);
    expect((await mockBackend()).probe().devices).toHaveLength(1);
  });
  it("can be tried again once it is mended", async () => {
    const link = join(scratchFile("folder/x", ""), "..", `mended-${process.pid}.so`);
    await failure(link);
    symlinkSync(mock(), link);
    expect((await loadBackend({ library: link })).name).toBe("mock");
  });
});

describe("a back end whose answers lie: the value, and what is allowed", () => {
  it.each([
    [3, "probe tells of 1000000000 devices, allowed: 0 to 1024"],
    [4, "probe tells of -1 devices, allowed: 0 to 1024"],
    [5, "probe changed its answer's struct_size to 4, must leave it at"],
  ])("to probe: %i", async (lie, text) => {
    const { state, reason, devices } = (await mockBackend(`-DMOCK_LIES=${lie}`)).probe();
    expect({ state, devices }).toEqual({ state: "error", devices: [] });
    expect(reason).toContain(`defect of the back end mock: ${text}`);
  });
  it("about a device: it alone is unusable", async () => {
    const { state, devices } = (await mockBackend("-DMOCK_LIES=8")).probe();
    expect({ state, device: devices[0]?.state }).toEqual({ state: "usable", device: "error" });
    expect(devices[0]?.reason).toMatch(/device_info changed its answer's struct_size to \d+, must leave it at \d+/);
  });
  it.each([
    [6, "kernel_count tells of 1000000000 kernels, allowed: 0 to 4096"],
    [7, "kernel_count tells of -1 kernels, allowed: 0 to 4096"],
    [9, "kernel_info changed its answer's struct_size to 0, must leave it at"],
  ])("about its kernels, and goes on computing: %i", async (lie, text) => {
    const context = (await mockBackend(`-DMOCK_LIES=${lie}`)).open({ device: 0 });
    expect(() => context.kernels()).toThrowError(
      expect.objectContaining({ code: "device-error", message: expect.stringContaining(text) }),
    );
    const problem = small();
    await context.attention(problem);
    expect(problem.result[1]).toBeGreaterThan(0);
    context.dispose();
  });
});

describe("the addon itself", () => {
  const { addon } = nativeLibrary();
  it.each([[undefined], [5], [{}], [""], ["a\0b"]])("load(%o) is refused", (path) => {
    expect(() => addon!.load(path as string)).toThrowError(/path|absolute/);
  });
  it("is one library per file, whatever the path to it", async () => {
    const folder = join(scratchFile("folder/x", ""), "..", `link-${process.pid}`);
    mkdirSync(folder, { recursive: true });
    const link = join(folder, "same.so");
    symlinkSync(mock(), link);
    expect(addon!.load(link).path).toBe(addon!.load(mock()).path);
  });
  it("hands out no constructors, and methods insist on their object", () => {
    const library = addon!.load(mock());
    const Library = library.constructor as new () => unknown;
    expect(() => new Library()).toThrowError("Illegal constructor");
    expect(() => library.probe.call({} as never)).toThrowError();
    const context = library.open(0, 1, () => {});
    expect(() => library.probe.call(context as never)).toThrowError();
    context.dispose();
  });
  it.each([[-1], [0.5], [Number.NaN], ["0"], [undefined], [2 ** 40]])("open(%o) is refused", (device) => {
    const library = addon!.load(mock());
    expect(() => library.open(device as number, 0, () => {})).toThrowError(
      expect.objectContaining({ code: "invalid-argument" }),
    );
  });
  it("the failures of a back end keep their code and text", () => {
    const library = addon!.load(mock());
    expect(() => library.open(1, 0, () => {})).toThrowError(
      expect.objectContaining({ code: "device-unavailable", message: "device must be 0" }),
    );
    expect(() => library.open(0, 13, () => {})).toThrowError(
      expect.objectContaining({ code: "out-of-memory", message: "unlucky number of threads" }),
    );
  });
});

describe("where a library is looked for", () => {
  afterEach(() => {
    delete process.env.TESSERA_BACKEND_PATH;
  });
  it("unknown names are refused with the known ones", async () => {
    await expect(loadBackend("opencl" as BackendName)).rejects.toMatchObject({
      code: "invalid-argument",
      message: `backend is "opencl", expected one of ${backendNames.join(", ")}`,
    });
  });
  // A name that no package has: the libraries of this checkout may be built, or not.
  it("every attempt is told, in order, then what to do, in order", () => {
    const named = mock();
    process.env.TESSERA_BACKEND_PATH = ["/nowhere", "relative/folder", "", tmpdir(), named].join(":");
    const { library, attempts, fixes, state } = locate("absent");
    expect(library).toBeUndefined();
    const told = attempts.map(({ at, result }) => `${at}: ${result}`);
    expect(told.slice(0, 4)).toEqual([
      "/nowhere: does not exist",
      "relative/folder: is not an absolute path",
      `${join(tmpdir(), "libtessera-absent.so")}: does not exist`,
      `${named}: is named after another back end, not libtessera-absent.so`,
    ]);
    expect(told.slice(4)).toEqual(
      Array(2).fill(expect.stringMatching(/^@tessera\/absent from file:.*is not installed$/)),
    );
    expect(state).toBe("package-missing");
    expect(fixes).toEqual([
      `run \`npm install @tessera/absent@${version}\``,
      "set TESSERA_BACKEND_PATH to the absolute path of the folder that has libtessera-absent.so",
    ]);
  });
  it("TESSERA_BACKEND_PATH wins over packages: a folder", async () => {
    const folder = join(scratchFile("path/x", ""), "..", `p-${process.pid}`);
    mkdirSync(folder, { recursive: true });
    symlinkSync(mock(), join(folder, "libtessera-cpu.so"));
    process.env.TESSERA_BACKEND_PATH = folder;
    expect((await loadBackend("cpu")).name).toBe("mock");
    process.env.TESSERA_BACKEND_PATH = join(folder, "libtessera-cpu.so");
    expect((await loadBackend("cpu")).name).toBe("mock");
  });
  it("what was found but can't be used is told, not passed over", async () => {
    const folder = join(scratchFile("bad/x", ""), "..");
    scratchFile("bad/libtessera-cpu.so", "no library\n");
    process.env.TESSERA_BACKEND_PATH = folder;
    await expect(loadBackend("cpu")).rejects.toMatchObject({ code: "backend-missing" });
  });
  it("the reference is always there", async () => {
    expect((await loadBackend("reference")).name).toBe("reference");
  });
});
