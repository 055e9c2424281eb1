/** Back ends that are wrong in one way each (shim.c), around the CPU's. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, type TestContext } from "vitest";

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));
export const cpu = path("../../../backends/cpu/lib/libtessera-cpu.so");
const compiler = ["cc", "gcc", "clang"].find((name) => spawnSync(name, ["--version"]).status === 0);

/** Compiles into `folder` one that is wrong in the way that the macro says. */
export const shimIn =
  (folder: string) =>
  (ctx: TestContext, macro: string): string => {
    if (compiler === undefined) ctx.skip("no C compiler");
    expect(existsSync(cpu), `${cpu} is built`).toBe(true);
    const library = join(folder, `${macro}.so`);
    const args = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", `-D${macro}`, `-DREAL="${cpu}"`];
    const { status, stderr } = spawnSync(
      compiler,
      [...args, "-I", path("../../core/include"), path("shim.c"), "-o", library, "-ldl"],
      { encoding: "utf8" },
    );
    expect(stderr).toBe("");
    expect(status).toBe(0);
    return library;
  };
