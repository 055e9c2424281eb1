/** Uniform blocks: one list of names serves the shader's struct and the host's writer. */

export type FieldType = "u32" | "i32" | "f32";

export type Fields = Readonly<Record<string, FieldType>>;

/** Bytes of a block, rounded up as uniform buffers want it. */
export const blockBytes = (fields: Fields): number => Math.ceil(Object.keys(fields).length / 4) * 16;

/** `struct Params { ... }` and its binding. */
export function declareParams(fields: Fields): string {
  const members = Object.entries(fields).map(([name, type]) => `  ${name}: ${type},`);
  return `struct Params {\n${members.join("\n")}\n}\n@group(0) @binding(0) var<uniform> p: Params;\n`;
}

const listed = new WeakMap<Fields, readonly (readonly [string, FieldType])[]>();

/** Values of a block; whole numbers are taken modulo 2^32, as the shader's arithmetic is. */
export function packParams<F extends Fields>(fields: F, values: { readonly [K in keyof F]: number }): ArrayBuffer {
  let entries = listed.get(fields);
  if (!entries) {
    entries = Object.entries(fields);
    listed.set(fields, entries);
  }
  const block = new ArrayBuffer(blockBytes(fields));
  const words = new Uint32Array(block); // WebGPU's hosts are little-endian
  const floats = new Float32Array(block);
  let at = 0;
  for (const [name, type] of entries) {
    if (type === "f32") floats[at] = values[name]!;
    else words[at] = values[name]!;
    at++;
  }
  return block;
}
