import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll } from "vitest";
import { run } from "../src/program.js";

/** The real input: q, k, v, out and lse of six layers. */
export const kjv = fileURLToPath(new URL("../../../examples/data/kjv-qkv.safetensors", import.meta.url));

export function scratch(): string {
  const folder = mkdtempSync(join(tmpdir(), "tessera-cli-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** One command line, in this process. */
export async function tessera(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  let out = "";
  let err = "";
  const code = await run(
    args,
    (text) => {
      out += text;
    },
    (text) => {
      err += text;
    },
  );
  return { code, out, err };
}

/** A safetensors file from a header as text (or anything JSON can say) and its data. */
export function fileBytes(header: unknown, data: Uint8Array = new Uint8Array(0)): Buffer {
  const json = Buffer.from(typeof header === "string" ? header : JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  return Buffer.concat([length, json, data]);
}

export function put(folder: string, name: string, bytes: Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, bytes);
  return path;
}

/** Reproducible numbers in [-1, 1). */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 31 - 1;
  };
}

export interface Plain {
  readonly dtype?: "F32" | "F16" | "BF16" | "I32" | "BOOL" | "U8" | "F64";
  readonly shape: readonly number[];
  readonly data: Float32Array | Int32Array | Uint8Array | Uint16Array;
}

export function f32(shape: readonly number[], value: () => number): Plain {
  const count = shape.reduce((a, b) => a * b, 1);
  return { shape, data: Float32Array.from({ length: count }, value) };
}

export function i32(...values: number[]): Plain {
  return { dtype: "I32", shape: [values.length], data: Int32Array.from(values) };
}

/** Written by hand, not by our writer, so that the two check each other. */
export function safetensors(tensors: { [name: string]: Plain }, metadata?: { [key: string]: string }): Buffer {
  const header: { [name: string]: unknown } = metadata ? { __metadata__: metadata } : {};
  const chunks: Uint8Array[] = [];
  let offset = 0;
  for (const [name, { dtype = "F32", shape, data }] of Object.entries(tensors)) {
    header[name] = { dtype, shape, data_offsets: [offset, offset + data.byteLength] };
    offset += data.byteLength;
    chunks.push(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  }
  return fileBytes(header, Buffer.concat(chunks));
}
