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

/** What a feed and a result of a type are made of. */
const storage = {
  float32: { pack: (data) => data, unpack: (data) => data },
};

/**
 * The ops that can do a case, in float32 and, where the case is narrower, float16.
 *
 * GroupQueryAttention gets all keys as new ones; with one new token it would first copy its whole cache, so that case is
 * left to Attention. MultiHeadAttention has no groups and no causality of its own.
 */
export async function onnxruntimeContestants(c, { q, k, v }, threads, turnsOf, encode, decode) {
  const { sq, sk, heads, kvHeads, dim } = c;
  storage.float16 = {
    pack: (data) => encode(data, "f16"),
    unpack: (data) => decode(new Uint16Array(data.buffer, data.byteOffset, data.length), "f16"),
  };
  const options = { intraOpNumThreads: threads, interOpNumThreads: 1, logSeverityLevel: 3 };
  const contestants = [];

  async function add(label, type, spec, feedsOf, fix = (data) => data) {
    let session;
    try {
      session = await ort.InferenceSession.create(oneNodeModel(spec), options);
      await session.run(feedsOf(0));
    } catch (error) {
      console.log(
        `  (onnxruntime ${label} ${type} can't do ${c.name}: ${String(error.message).split("\n")[0].slice(0, 120)})`,
      );
      return;
    }
    let turn = 0;
    const run = async () => (await session.run(feedsOf(turn++ % (c.copies ?? 1)))).out.data;
    contestants.push({
      name: `onnxruntime ${label} ${type}`,
      output: async () => fix(storage[type].unpack(await run())),
      turn: turnsOf(run),
      close: () => session.release(),
    });
  }

  const types = c.type === "f32" ? ["float32"] : ["float32", "float16"];
  for (const type of types) {
    const tensor = (data, dims) => new ort.Tensor(type, storage[type].pack(data), dims);
    const copies = (make) => Array.from({ length: c.copies ?? 1 }, make);
    const flat = { q: [1, sq, heads * dim], kv: [1, sk, kvHeads * dim] };
    const apart = { q: [1, heads, sq, dim], kv: [1, kvHeads, sk, dim] };
    if (c.causal) {
      const lengths = {
        lengths: new ort.Tensor("int32", Int32Array.of(sk - 1), [1]),
        total: new ort.Tensor("int32", Int32Array.of(sk), [1]),
      };
      const feeds = { q: tensor(q, flat.q), k: tensor(k, flat.kv), v: tensor(v, flat.kv), ...lengths };
      await add(
        "GroupQueryAttention",
        type,
        {
          op: "GroupQueryAttention",
          domain: "com.microsoft",
          opset: 21,
          inputs: [
            { name: "q", type, shape: flat.q },
            { name: "k", type, shape: flat.kv },
            { name: "v", type, shape: flat.kv },
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
        },
        () => feeds,
      );
    }
    if (!c.causal && heads === kvHeads) {
      const feeds = { q: tensor(q, flat.q), k: tensor(k, flat.kv), v: tensor(v, flat.kv) };
      await add(
        "MultiHeadAttention",
        type,
        {
          op: "MultiHeadAttention",
          domain: "com.microsoft",
          opset: 21,
          inputs: [
            { name: "q", type, shape: flat.q },
            { name: "k", type, shape: flat.kv },
            { name: "v", type, shape: flat.kv },
          ],
          outputs: [{ name: "out", type, shape: flat.q }],
          attributes: { num_heads: heads },
        },
        () => feeds,
      );
    }
    const [kHeads, vHeads] = [headsFirst(k, sk, kvHeads, dim), headsFirst(v, sk, kvHeads, dim)];
    const qHeads = tensor(headsFirst(q, sq, heads, dim), apart.q);
    const feeds = copies(() => ({
      q: qHeads,
      k: tensor(kHeads.slice(), apart.kv),
      v: tensor(vHeads.slice(), apart.kv),
    }));
    await add(
      "Attention (opset 23)",
      type,
      {
        op: "Attention",
        domain: "",
        opset: 23,
        inputs: [
          { name: "q", type, shape: apart.q },
          { name: "k", type, shape: apart.kv },
          { name: "v", type, shape: apart.kv },
        ],
        outputs: [{ name: "out", type, shape: apart.q }],
        attributes: { is_causal: c.causal ? 1 : 0 },
      },
      (copy) => feeds[copy],
      (data) => headsFirst(data, heads, sq, dim),
    );
  }
  return contestants;
}
