import { TesseraError } from "@tessera/core";
import { writeAtomically } from "../ui/atomic.js";
import { bitsOf, type FileDType } from "./dtypes.js";
import { maxHeaderBytes } from "./header.js";

export interface TensorToWrite {
  readonly name: string;
  readonly dtype: FileDType;
  readonly shape: readonly number[];
  readonly data: Uint8Array;
}

/** Writes a whole file or none: at `path` there is never a part of one. @throws TesseraError */
export async function writeSafetensors(
  path: string,
  tensors: readonly TensorToWrite[],
  metadata: { readonly [key: string]: string } = {},
): Promise<void> {
  // Wide types first, so that every tensor is aligned to its elements.
  const order = [...tensors].sort((a, b) => bitsOf[b.dtype] - bitsOf[a.dtype] || (a.name < b.name ? -1 : 1));
  const entries: [string, unknown][] = Object.keys(metadata).length > 0 ? [["__metadata__", metadata]] : [];
  const names = new Set(["__metadata__"]);
  let offset = 0;
  for (const { name, dtype, shape, data } of order) {
    const bytes = (shape.reduce((a, b) => a * b, 1) * bitsOf[dtype]) / 8;
    if (bytes !== data.length) {
      throw new TesseraError(
        "invalid-argument",
        `${name}: ${dtype} [${shape}] takes ${bytes} bytes, not ${data.length}`,
      );
    }
    if (names.has(name)) throw new TesseraError("invalid-argument", `two tensors are named ${name}`);
    names.add(name);
    entries.push([name, { dtype, shape, data_offsets: [offset, offset + bytes] }]);
    offset += bytes;
  }
  // Not Object.fromEntries: names of digits would change their order.
  let json = `{${entries.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`).join(",")}}`;
  const encoder = new TextEncoder();
  json += " ".repeat((8 - (encoder.encode(json).length % 8)) % 8);
  const header = encoder.encode(json);
  if (header.length > maxHeaderBytes) throw new TesseraError("invalid-argument", `a header of ${header.length} bytes`);
  const prefix = new Uint8Array(8);
  new DataView(prefix.buffer).setBigUint64(0, BigInt(header.length), true);
  await writeAtomically(path, [prefix, header, ...order.map(({ data }) => data)]);
}
