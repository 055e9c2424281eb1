import { type FileHandle, open } from "node:fs/promises";
import { TesseraError } from "@tessera/core";
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
      handle = await open(path, "r");
    } catch (cause) {
      throw invalid(path, reasonOf(cause), cause);
    }
    try {
      const stat = await handle.stat();
      if (!stat.isFile()) throw invalid(path, stat.isDirectory() ? "is a directory" : "is not a regular file");
      const prefix = new Uint8Array(Math.min(8, stat.size));
      await readFully(path, handle, prefix, 0);
      const length = headerLength(path, prefix, stat.size);
      const bytes = new Uint8Array(length);
      await readFully(path, handle, bytes, 8);
      const header = parseHeader(path, bytes, stat.size - 8 - length);
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
    let bytes: Uint8Array<ArrayBuffer>;
    try {
      bytes = new Uint8Array(count);
    } catch (cause) {
      throw new TesseraError("out-of-memory", `${this.path}: tensor ${quote(name)} needs ${count} bytes`, { cause });
    }
    await readFully(this.path, this.#handle, bytes, this.#dataStart + entry.begin);
    return bytes;
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
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
