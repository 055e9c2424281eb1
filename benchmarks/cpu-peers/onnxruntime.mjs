// onnxruntime's attention ops as contestants of run.mjs.
import ort from "onnxruntime-node";
import { oneNodeModel } from "./onnx.mjs";

/** [S, H, D] to [H, S, D]. */
function headsFirst(data, tokens, heads, dim) {
  const out = new data.constructor(data.length);
  for (let s = 0; s < tokens; s++) {
    for (let h = 0; h < heads; h++) {
      out.set(data.subarray((s * heads + h) * dim, (s * heads + h + 1) * dim), (h * tokens + s) * dim);
    }
  }
  return out;
}

/**
 * The ops and types that a case is tried with: float32 and, where the case is narrower, float16 (there is no bf16, and
 * no op takes q8_0 or q4_0).
 *
 * GroupQueryAttention gets all keys as new ones; with one new token it would first copy its whole cache, so that case is
 * left to Attention. MultiHeadAttention has no groups and no causality of its own.
 */
export function onnxruntimeContestants(c) {
  if (c.type.startsWith("q")) return [];
  const ops = ["Attention"];
  if (c.causal) ops.push("GroupQueryAttention");
  else if (c.heads === c.kvHeads) ops.push("MultiHeadAttention");
  const types = c.type === "f32" ? ["float32"] : ["float32", "float16"];
  return types.flatMap((type) => ops.map((op) => ({ op, type })));
}

/** One of them: `run` calls it once, on the next copy of k and v; `output` is what the last call gave, as [S, H, D] in fp32. */
export async function onnxruntimeOp(c, stored, { op, type, threads, encode, decode }) {
  const { sq, sk, heads, kvHeads, dim } = c;
  const wide = (data) => Float32Array.from(decode(data, c.type));
  const [q, k, v] = [stored.q, wide(stored.k), wide(stored.v)];
  const pack = (data) => (type === "float16" ? encode(data, "f16") : data);
  const unpack = (data) =>
    type === "float16" ? decode(new Uint16Array(data.buffer, data.byteOffset, data.length), "f16") : data;
  const tensor = (data, dims) => new ort.Tensor(type, pack(data), dims);
  const flat = { q: [1, sq, heads * dim], kv: [1, sk, kvHeads * dim] };
  const apart = { q: [1, heads, sq, dim], kv: [1, kvHeads, sk, dim] };
  const inputs = (shapes) => [
    { name: "q", type, shape: shapes.q },
    { name: "k", type, shape: shapes.kv },
    { name: "v", type, shape: shapes.kv },
  ];
  const int32 = (n) => new ort.Tensor("int32", Int32Array.of(n), [1]);

  const specs = {
    GroupQueryAttention: {
      domain: "com.microsoft",
      opset: 21,
      inputs: [
        ...inputs(flat),
        null,
        null,
        { name: "lengths", type: "int32", shape: [1] },
        { name: "total", type: "int32", shape: [1] },
      ],
      outputs: [
        { name: "out", type, shape: flat.q },
        { name: "present_k", type, shape: apart.kv },
        { name: "present_v", type, shape: apart.kv },
      ],
      attributes: { num_heads: heads, kv_num_heads: kvHeads },
      feeds: () => ({
        q: tensor(q, flat.q),
        k: tensor(k, flat.kv),
        v: tensor(v, flat.kv),
        lengths: int32(sk - 1),
        total: int32(sk),
      }),
    },
    MultiHeadAttention: {
      domain: "com.microsoft",
      opset: 21,
      inputs: inputs(flat),
      outputs: [{ name: "out", type, shape: flat.q }],
      attributes: { num_heads: heads },
      feeds: () => ({ q: tensor(q, flat.q), k: tensor(k, flat.kv), v: tensor(v, flat.kv) }),
    },
    Attention: {
      domain: "",
      opset: 23,
      inputs: inputs(apart),
      outputs: [{ name: "out", type, shape: apart.q }],
      attributes: { is_causal: c.causal ? 1 : 0 },
      feeds: () => ({
        q: tensor(headsFirst(q, sq, heads, dim), apart.q),
        k: tensor(headsFirst(k, sk, kvHeads, dim), apart.kv),
        v: tensor(headsFirst(v, sk, kvHeads, dim), apart.kv),
      }),
      fix: (data) => headsFirst(data, heads, sq, dim),
    },
  };
  const { feeds, fix = (data) => data, ...spec } = specs[op];
  const session = await ort.InferenceSession.create(oneNodeModel({ op, ...spec }), {
    intraOpNumThreads: threads,
    interOpNumThreads: 1,
    logSeverityLevel: 3,
  });
  const copies = Array.from({ length: c.copies ?? 1 }, feeds);
  let turn = 0;
  let last;
  return {
    name: `onnxruntime ${op} ${type}`,
    run: async () => {
      last = (await session.run(copies[turn++ % copies.length])).out.data;
    },
    output: () => fix(Float32Array.from(unpack(last))),
  };
}
