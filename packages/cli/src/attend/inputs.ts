/** The tensors of one attention call, by the names that the help lists, from a safetensors file. */
import type { FileDType } from "../safetensors/dtypes.js";
import { invalid, quote } from "../safetensors/header.js";
import type { SafetensorsFile } from "../safetensors/read.js";

/** Contiguous, in the file's own type. */
export type FloatTensor =
  | { readonly dtype: "f32"; readonly shape: readonly number[]; readonly data: Float32Array }
  | { readonly dtype: "f16" | "bf16"; readonly shape: readonly number[]; readonly data: Uint16Array };

export interface BoolTensor {
  readonly dtype: "bool";
  readonly shape: readonly number[];
  readonly data: Uint8Array;
}

export interface Inputs {
  readonly prefix: string;
  readonly q: FloatTensor;
  readonly k: FloatTensor;
  readonly v: FloatTensor;
  /** [B|1, H|1, Sq, Sk]; leading dimensions may be absent. */
  readonly bias?: FloatTensor | undefined;
  readonly mask?: BoolTensor | undefined;
  readonly sinks?: Float32Array | undefined;
  readonly alibiSlopes?: Float32Array | undefined;
  readonly seqLensQ?: Int32Array | undefined;
  readonly seqLensK?: Int32Array | undefined;
  readonly cuSeqLensQ?: Int32Array | undefined;
  readonly cuSeqLensK?: Int32Array | undefined;
  /** Results that the file holds already. */
  readonly storedOut?: FloatTensor | undefined;
  readonly storedLse?: FloatTensor | undefined;
  /** The file's q had no batch dimension (and isn't packed): results are given back without one. */
  readonly unbatched: boolean;
}

/** @throws TesseraError `invalid-file` if q, k or v isn't there */
export function checkPresent(file: SafetensorsFile, prefix: string): void {
  const missing = ["q", "k", "v"].filter((name) => file.get(prefix + name) === undefined);
  if (missing.length > 0) throw invalid(file.path, missingMessage(file, prefix, missing));
}

/** @throws TesseraError `invalid-file` */
export async function readInputs(file: SafetensorsFile, prefix: string): Promise<Inputs> {
  checkPresent(file, prefix);
  const cuSeqLensQ = await ints(file, `${prefix}cu_seqlens_q`);
  const cuSeqLensK = await ints(file, `${prefix}cu_seqlens_k`);
  const [q, k, v] = [
    (await floats(file, `${prefix}q`, [3, 4]))!,
    (await floats(file, `${prefix}k`, [3, 4]))!,
    (await floats(file, `${prefix}v`, [3, 4]))!,
  ];
  const unbatched = q.shape.length === 3 && cuSeqLensQ === undefined;
  if (cuSeqLensQ !== undefined) demandPacked(file, `${prefix}q`, q, "cu_seqlens_q");
  const keys = (name: "k" | "v", tensor: FloatTensor): FloatTensor => {
    if (cuSeqLensK !== undefined) return demandPacked(file, prefix + name, tensor, "cu_seqlens_k");
    if (unbatched && tensor.shape.length === 3) return withBatch(tensor);
    if (!unbatched && tensor.shape.length === 4) return tensor;
    const allowed = unbatched
      ? "[S, H, D] as q has 3 dimensions"
      : "[B, S, H, D], or [T, H, D] together with cu_seqlens_k";
    throw invalid(
      file.path,
      `tensor ${quote(prefix + name)} has shape [${tensor.shape.join(", ")}]; allowed: ${allowed}`,
    );
  };
  return {
    prefix,
    q: unbatched ? withBatch(q) : q,
    k: keys("k", k),
    v: keys("v", v),
    bias: await floats(file, `${prefix}bias`, [2, 3, 4]),
    mask: await bools(file, `${prefix}mask`, [2, 3, 4]),
    sinks: await perHead(file, `${prefix}sinks`),
    alibiSlopes: await perHead(file, `${prefix}alibi_slopes`),
    seqLensQ: await ints(file, `${prefix}seq_lens_q`),
    seqLensK: await ints(file, `${prefix}seq_lens_k`),
    cuSeqLensQ,
    cuSeqLensK,
    storedOut: await floats(file, `${prefix}out`, [3, 4]),
    storedLse: await floats(file, `${prefix}lse`, [2, 3]),
    unbatched,
  };
}

function missingMessage(file: SafetensorsFile, prefix: string, missing: readonly string[]): string {
  const names = [...file.header.tensors.keys()];
  const prefixes = names.filter((name) => name.endsWith("q")).map((name) => name.slice(0, -1));
  const whole = prefixes.filter((p) => file.get(`${p}k`) !== undefined && file.get(`${p}v`) !== undefined).sort();
  const what = `has no tensor ${missing.map((name) => quote(prefix + name)).join(", ")}`;
  if (whole.length > 0) {
    const list = whole.slice(0, 12).map((p) => (p === "" ? "none" : p));
    return `${what}; --prefix values that name q, k and v: ${list.join(", ")}${whole.length > 12 ? ", ..." : ""}`;
  }
  const list = names.slice(0, 12).map(quote).join(", ");
  return `${what}; it holds ${names.length === 0 ? "no tensors" : `${list}${names.length > 12 ? ", ..." : ""}`}`;
}

/** The tensor's bytes if the file has it, once its type and rank are as allowed. */
async function load(
  file: SafetensorsFile,
  name: string,
  allowed: readonly FileDType[],
  ranks: readonly number[],
): Promise<{ dtype: FileDType; shape: readonly number[]; buffer: ArrayBuffer } | undefined> {
  const entry = file.get(name);
  if (entry === undefined) return undefined;
  const { dtype, shape } = entry;
  if (!allowed.includes(dtype)) {
    throw invalid(file.path, `tensor ${quote(name)} is ${dtype}; allowed: ${allowed.join(", ")}`);
  }
  if (!ranks.includes(shape.length)) {
    const expected = `${ranks.join(" or ")} dimension${ranks[0] === 1 ? "" : "s"}`;
    throw invalid(file.path, `tensor ${quote(name)} has shape [${shape.join(", ")}]; allowed: ${expected}`);
  }
  return { dtype, shape, buffer: (await file.read(name)).buffer };
}

async function floats(file: SafetensorsFile, name: string, ranks: readonly number[]): Promise<FloatTensor | undefined> {
  const tensor = await load(file, name, ["F32", "F16", "BF16"], ranks);
  if (tensor === undefined) return undefined;
  const { dtype, shape, buffer } = tensor;
  if (dtype === "F32") return { dtype: "f32", shape, data: new Float32Array(buffer) };
  return { dtype: dtype === "F16" ? "f16" : "bf16", shape, data: new Uint16Array(buffer) };
}

async function bools(file: SafetensorsFile, name: string, ranks: readonly number[]): Promise<BoolTensor | undefined> {
  const tensor = await load(file, name, ["BOOL", "U8"], ranks);
  return tensor && { dtype: "bool", shape: tensor.shape, data: new Uint8Array(tensor.buffer) };
}

async function perHead(file: SafetensorsFile, name: string): Promise<Float32Array | undefined> {
  const tensor = await load(file, name, ["F32"], [1]);
  return tensor && new Float32Array(tensor.buffer);
}

async function ints(file: SafetensorsFile, name: string): Promise<Int32Array | undefined> {
  const tensor = await load(file, name, ["I32"], [1]);
  return tensor && new Int32Array(tensor.buffer);
}

function demandPacked(file: SafetensorsFile, name: string, tensor: FloatTensor, by: string): FloatTensor {
  if (tensor.shape.length === 3) return tensor;
  throw invalid(
    file.path,
    `tensor ${quote(name)} has shape [${tensor.shape.join(", ")}]; allowed with ${by}: [T, H, D]`,
  );
}

function withBatch(tensor: FloatTensor): FloatTensor {
  return { ...tensor, shape: [1, ...tensor.shape] };
}
