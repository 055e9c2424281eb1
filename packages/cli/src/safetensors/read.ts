import { constants, type Stats } from "node:fs";
import { type FileHandle, open, stat } from "node:fs/promises";
import { totalmem } from "node:os";
import { TesseraError } from "@tessera/core";
import { bytes as sizeText } from "../ui/table.js";
import { type Header, headerLength, invalid, parseHeader, quote, type TensorEntry } from "./header.js";

/** A safetensors file, open: its header checked whole, its tensors read one at a time. */
export class SafetensorsFile {
  readonly path: string;
  readonly header: Header;
  readonly #handle: FileHandle;
  readonly #dataStart: number;

  private constructor(path: string, handle: FileHandle, header: Header, dataStart: number) {
    this.path = path;
    this.header = header;
    this.#handle = handle;
    this.#dataStart = dataStart;
  }

  /** @throws TesseraError `invalid-file` */
  static async open(path: string): Promise<SafetensorsFile> {
    let handle: FileHandle;
    try {
      demandFile(path, await stat(path)); // before it is opened: to open a device can do something to it
      handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK); // else a pipe put there since would hang us
    } catch (cause) {
      throw cause instanceof TesseraError ? cause : invalid(path, reasonOf(cause), cause);
    }
    try {
      const opened = await handle.stat();
      demandFile(path, opened);
      const { size } = opened;
      const prefix = new Uint8Array(Math.min(8, size));
      await readFully(path, handle, prefix, 0);
      const length = headerLength(path, prefix, size);
      const bytes = new Uint8Array(length);
      await readFully(path, handle, bytes, 8);
      const header = parseHeader(path, bytes, size - 8 - length);
      return new SafetensorsFile(path, handle, header, 8 + length);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  get(name: string): TensorEntry | undefined {
    return this.header.tensors.get(name);
  }

  /** The tensor's bytes, in a buffer of their own. @throws TesseraError `invalid-file`, `out-of-memory` */
  async read(name: string): Promise<Uint8Array<ArrayBuffer>> {
    const entry = this.get(name);
    if (entry === undefined) throw invalid(this.path, `has no tensor ${quote(name)}`);
    const count = entry.end - entry.begin;
    const bytes = allocate(this.path, name, count);
    await readFully(this.path, this.#handle, bytes, this.#dataStart + entry.begin);
    return bytes;
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}

function demandFile(path: string, stat: Stats): void {
  if (!stat.isFile()) throw invalid(path, stat.isDirectory() ? "is a directory" : "is not a regular file");
}

/** Asked beforehand: an allocation past the memory can succeed, and the process be killed while it is filled. */
function allocate(path: string, name: string, count: number): Uint8Array<ArrayBuffer> {
  const limit = process.constrainedMemory(); // of the container; 0 or past the machine's where there is none
  const memory = limit > 0 ? Math.min(limit, totalmem()) : totalmem();
  const left = Math.max(0, memory - process.memoryUsage.rss());
  let cause: unknown;
  try {
    if (count <= left) return new Uint8Array(count);
  } catch (error) {
    cause = error;
  }
  const why = cause === undefined ? `this process can have ${sizeText(left)} more` : (cause as Error).message;
  throw new TesseraError(
    "out-of-memory",
    `${path}: not enough memory: tensor ${quote(name)} takes ${sizeText(count)}, and ${why}; the file itself is sound`,
    { cause },
  );
}

async function readFully(path: string, handle: FileHandle, target: Uint8Array, position: number): Promise<void> {
  let done = 0;
  while (done < target.length) {
    const want = Math.min(target.length - done, 1 << 30); // one read takes at most 2^31 - 1 bytes
    let got: number;
    try {
      got = (await handle.read(target, done, want, position + done)).bytesRead;
    } catch (cause) {
      throw invalid(path, reasonOf(cause), cause);
    }
    if (got === 0) throw invalid(path, `ended at byte ${position + done} while it was read`);
    done += got;
  }
}

const reasons: { readonly [code: string]: string } = {
  ENOENT: "no such file",
  EACCES: "may not be read (permission denied)",
  EISDIR: "is a directory",
};

function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return reasons[code ?? ""] ?? `can't be read: ${message}`;
}
