import { randomBytes } from "node:crypto";
import { constants, rmSync, type Stats } from "node:fs";
import { access, type FileHandle, open, realpath, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { TesseraError } from "@tessera/core";

/**
 * Writes beside the target and renames over it, so that a reader, a full disk or Ctrl-C never meets half a file.
 * A character device (/dev/null) is written to as it is, for renaming over it would replace it. A pipe is refused: to
 * open one waits, for ever if nobody reads.
 * @throws TesseraError `invalid-argument` if it can't be written
 */
export async function writeAtomically(path: string, chunks: readonly Uint8Array[]): Promise<void> {
  try {
    const existing = await writable(path);
    if (existing?.isCharacterDevice()) {
      await fill(path, "w", undefined, chunks, false);
      return;
    }
    const target = existing === undefined ? path : await realpath(path); // a link stays a link
    if (existing !== undefined) await access(target, constants.W_OK); // rename alone would replace a read-only file
    const temporary = join(dirname(target), `.${basename(target)}.${randomBytes(6).toString("hex")}.tmp`);
    const dropOnExit = () => rmSync(temporary, { force: true });
    process.once("exit", dropOnExit);
    try {
      await fill(temporary, "wx", existing?.mode, chunks, true);
      await rename(temporary, target);
    } catch (error) {
      await rm(temporary, { force: true });
      throw error;
    } finally {
      process.removeListener("exit", dropOnExit);
    }
  } catch (cause) {
    if (cause instanceof TesseraError) throw cause;
    throw cannotWrite(path, cause);
  }
}

/** What would be found only after the work is done. @throws TesseraError `invalid-argument`, naming the flag */
export async function checkTarget(flag: string, path: string): Promise<void> {
  try {
    if ((await writable(path)) === undefined) await access(dirname(path), constants.W_OK);
  } catch (cause) {
    throw cannotWrite(path, cause, `${flag}: `);
  }
}

/** What is at `path`, if anything is. @throws Error if it is nothing to write to */
async function writable(path: string): Promise<Stats | undefined> {
  const existing = await stat(path).catch(absent);
  if (existing?.isDirectory()) throw new Error("is a directory");
  if (existing !== undefined && !existing.isFile() && !existing.isCharacterDevice()) {
    throw new Error("is not a regular file");
  }
  return existing;
}

function cannotWrite(path: string, cause: unknown, where = ""): TesseraError {
  return new TesseraError("invalid-argument", `${where}can't write ${path}: ${(cause as Error).message}`, { cause });
}

function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT") throw error;
}

async function fill(
  path: string,
  flags: string,
  mode: number | undefined,
  chunks: readonly Uint8Array[],
  sync: boolean,
): Promise<void> {
  const handle: FileHandle = await open(path, flags, mode === undefined ? undefined : mode & 0o777);
  try {
    for (const chunk of chunks) {
      for (let done = 0; done < chunk.length; ) {
        done += (await handle.write(chunk, done, Math.min(chunk.length - done, 1 << 30))).bytesWritten;
      }
    }
    if (sync) await handle.sync();
  } finally {
    await handle.close();
  }
}
