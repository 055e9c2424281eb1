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

/** Values of a block; whole numbers are taken modulo 2^32, as the shader's arithmetic is. */
export function packParams<F extends Fields>(fields: F, values: { readonly [K in keyof F]: number }): ArrayBuffer {
  const block = new ArrayBuffer(blockBytes(fields));
  const view = new DataView(block);
  Object.entries(fields).forEach(([name, type], i) => {
    const value = values[name]!;
    if (type === "f32") view.setFloat32(4 * i, value, true);
    else view.setUint32(4 * i, modulo(value), true);
  });
  return block;
}

const modulo = (value: number) =>
  Number.isSafeInteger(value) ? Number(BigInt.asUintN(32, BigInt(value))) : value >>> 0;
