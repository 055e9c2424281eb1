/**
 * The header of a safetensors file: 8 bytes of length, then JSON, then the data that the JSON describes. The format
 * demands that tensors fill the data exactly: no overlap, no hole, nothing after the last. All of it is checked here,
 * before a byte of data is read or a buffer is sized by what the file claims.
 */
import { TesseraError } from "@tessera/core";
import { bitsOf, type FileDType, isFileDType } from "./dtypes.js";
import { clip, type Json, JsonError, parseJson } from "./json.js";

export const maxHeaderBytes = 100_000_000;
const limits = { depth: 8, elements: 64, members: 1 << 18 };

export interface TensorEntry {
  readonly name: string;
  readonly dtype: FileDType;
  readonly shape: readonly number[];
  /** Bytes from the start of the data. */
  readonly begin: number;
  readonly end: number;
}

export interface Header {
  readonly tensors: ReadonlyMap<string, TensorEntry>;
  readonly metadata: ReadonlyMap<string, string>;
}

export function invalid(file: string, what: string, cause?: unknown): TesseraError {
  return new TesseraError("invalid-file", `${file}: ${what}`, cause === undefined ? undefined : { cause });
}

/** @throws TesseraError `invalid-file` */
export function headerLength(file: string, prefix: Uint8Array, fileBytes: number): number {
  if (fileBytes < 8 || prefix.length < 8) {
    throw invalid(file, `not a safetensors file: ${fileBytes} bytes, and the header's length alone takes 8`);
  }
  const length = new DataView(prefix.buffer, prefix.byteOffset, 8).getBigUint64(0, true);
  if (length > BigInt(maxHeaderBytes)) {
    throw invalid(
      file,
      `header length ${length} is past the format's limit of ${maxHeaderBytes}; not a safetensors file?`,
    );
  }
  if (length > BigInt(fileBytes - 8)) {
    throw invalid(file, `truncated: the header is ${length} bytes, and the file ends ${fileBytes - 8} bytes into it`);
  }
  if (length < 2n) throw invalid(file, `header length ${length}; the shortest header is {} (2 bytes)`);
  return Number(length);
}

/** @throws TesseraError `invalid-file` */
export function parseHeader(file: string, bytes: Uint8Array, dataBytes: number): Header {
  const root = parseRoot(file, bytes);
  const tensors = new Map<string, TensorEntry>();
  let metadata: ReadonlyMap<string, string> = new Map();
  for (const [name, value] of root) {
    if (name === "__metadata__") metadata = parseMetadata(file, value);
    else tensors.set(name, parseTensor(file, name, value, dataBytes));
  }
  checkCoverage(file, tensors, dataBytes);
  return { tensors, metadata };
}

function parseRoot(file: string, bytes: Uint8Array): Map<string, Json> {
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
    throw invalid(file, "the header begins with a byte order mark; it must begin with {");
  }
  if (bytes[0] !== 0x7b) {
    throw invalid(
      file,
      `the header begins with byte 0x${bytes[0]?.toString(16).padStart(2, "0")}; it must begin with {`,
    );
  }
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw invalid(file, "the header is not UTF-8", cause);
  }
  try {
    return parseJson(text, limits) as Map<string, Json>;
  } catch (cause) {
    if (!(cause instanceof JsonError)) throw cause;
    throw invalid(file, `the header is not JSON as the format wants it: ${cause.message}`, cause);
  }
}

function parseMetadata(file: string, value: Json): Map<string, string> {
  if (!(value instanceof Map)) throw invalid(file, `__metadata__ is ${kind(value)}; it must be an object of strings`);
  for (const [key, entry] of value) {
    if (typeof entry !== "string") {
      throw invalid(file, `__metadata__ key ${quote(key)} is ${kind(entry)}; it must be a string`);
    }
  }
  return value as Map<string, string>;
}

function parseTensor(file: string, name: string, value: Json, dataBytes: number): TensorEntry {
  const fail = (what: string): never => {
    throw invalid(file, `tensor ${quote(name)}: ${what}`);
  };
  if (!(value instanceof Map)) return fail(`is ${kind(value)}; it must be { dtype, shape, data_offsets }`);

  const dtype = value.get("dtype");
  if (typeof dtype !== "string") return fail(`dtype is ${kind(dtype)}; it must be a string`);
  if (!isFileDType(dtype)) return fail(`dtype ${quote(dtype)} is unknown; allowed: ${Object.keys(bitsOf).join(", ")}`);

  const shape = value.get("shape");
  if (!Array.isArray(shape)) return fail(`shape is ${kind(shape)}; it must be an array of integers`);
  let bits = BigInt(bitsOf[dtype]);
  const extents = shape.map((extent) => {
    if (typeof extent !== "bigint" || extent < 0n) return fail(`shape holds ${kind(extent)}; allowed: integers >= 0`);
    bits *= extent;
    if (extent > BigInt(Number.MAX_SAFE_INTEGER) || bits > 1n << 66n) {
      return fail(`shape [${shape.join(", ")}] is larger than any file can be`);
    }
    return Number(extent);
  });
  if (bits % 8n !== 0n) return fail(`shape [${extents.join(", ")}] of ${dtype} ends within a byte`);
  const bytes = bits / 8n;

  const offsets = value.get("data_offsets");
  if (!Array.isArray(offsets) || offsets.length !== 2) return fail("data_offsets must be [begin, end]");
  const [begin, end] = offsets;
  if (typeof begin !== "bigint" || typeof end !== "bigint" || begin < 0n || end < begin) {
    return fail(`data_offsets [${offsets.map(kind).join(", ")}] must be integers with 0 <= begin <= end`);
  }
  if (end > BigInt(dataBytes)) {
    return fail(`data_offsets [${begin}, ${end}] end past the file's ${dataBytes} bytes of data (truncated?)`);
  }
  if (end - begin !== bytes) {
    return fail(
      `${dtype} [${extents.join(", ")}] takes ${bytes} bytes, and data_offsets [${begin}, ${end}] give ${end - begin}`,
    );
  }
  return { name, dtype, shape: extents, begin: Number(begin), end: Number(end) };
}

function checkCoverage(file: string, tensors: Map<string, TensorEntry>, dataBytes: number): void {
  const sorted = [...tensors.values()].sort((a, b) => a.begin - b.begin || a.end - b.end);
  let end = 0;
  let previous = "";
  for (const tensor of sorted) {
    if (tensor.begin < end) {
      throw invalid(
        file,
        `tensor ${quote(tensor.name)} begins at ${tensor.begin}, within ${quote(previous)}, which ends at ${end}`,
      );
    }
    if (tensor.begin > end) {
      throw invalid(
        file,
        `bytes ${end} to ${tensor.begin} of the data belong to no tensor (hole before ${quote(tensor.name)})`,
      );
    }
    end = tensor.end;
    previous = tensor.name;
  }
  if (end < dataBytes) throw invalid(file, `${dataBytes - end} bytes after the last tensor belong to none`);
}

export function quote(name: string): string {
  return JSON.stringify(clip(name));
}

function kind(value: Json | undefined): string {
  if (value === undefined) return "missing";
  if (value === null) return "null";
  if (value instanceof Map) return "an object";
  if (Array.isArray(value)) return "an array";
  return typeof value === "string" ? quote(value) : String(value);
}
