/** Does the table bite? Shaders with one defect each, which a few of its cases have to refuse. */
import { runConformance } from "@tessera/conformance";
import { describe, expect, it } from "vitest";
import { adapter, backendOfAdapter, full } from "./adapter.js";

interface Mutation {
  readonly name: string;
  readonly from: string;
  readonly to: string;
  readonly cases: RegExp;
  /** One that wants aligned rows. */
  readonly kernel?: string;
  /** Not in CI. */
  readonly more?: boolean;
}

const mutations: readonly Mutation[] = [
  {
    name: "causality a key too far",
    from: "position + p.right + 1",
    to: "position + p.right + 2",
    cases: /^length\/65x65$/,
  },
  {
    name: "window a key short",
    from: "position - p.left, 0",
    to: "position - p.left + 1, 0",
    cases: /^window\//,
    more: true,
  },
  { name: "the sum isn't rescaled", from: "sum *= shrink;", to: "", cases: /^length\/129x129$/ },
  { name: "the result isn't rescaled", from: "acc0_0 *= shrink[0];", to: "", cases: /^length\/129x129$/ },
  {
    name: "row maxima of one thread only",
    from: "let above = max(top, row_max(best, ty, tx, reach));",
    to: "let above = max(top, best);",
    cases: /^length\/65x65$/,
  },
  {
    name: "a NaN in V reaches a query that doesn't see it",
    from: "seen_by(bits[0], x0)",
    to: "x0",
    cases: /^poison\/v-causal$/,
  },
  {
    name: "every query head reads KV head 0",
    from: "let kvHead = head0 / p.group;",
    to: "let kvHead = 0u;",
    cases: /^heads\/14-2$/,
  },
  {
    name: "a tail of D isn't cleared",
    from: "let x = k_raw(base, e);\n  return select(vec4<f32>(), x, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(left));",
    to: "return k_raw(base, e);",
    cases: /^dim\/33$/,
  },
  {
    name: "V with K's strides",
    from: "p.vBatch, p.vRow) + kvHead * p.vHead",
    to: "p.kBatch, p.kRow) + kvHead * p.kHead",
    cases: /^dim\/40-64|^dim\/64-128/,
    more: true,
  },
  {
    name: "parts weigh the same",
    from: "weight = exp2(bitcast<f32>(bits) - top);",
    to: "weight = 1.0;",
    cases: /^split/,
    more: true,
  },
  {
    name: "a half overwrites its neighbour",
    from: "atomicAnd(&out[at >> 2u], ~(0xffffu << shift));",
    to: "atomicStore(&out[at >> 2u], 0u);",
    cases: /^heads\/14-2\/one$/,
  },
  {
    name: "a stream's teams meet as if their maxima were the same",
    from: "let factor_0 = exp2(top_0 - all_0);",
    to: "let factor_0 = exp2(top_0 - top_0);",
    cases: /^decode\/1$/,
    kernel: "decode-stream-portable",
  },
  {
    name: "a stream counts the last key again",
    from: "let ok1 = key1 < keyEnd;",
    to: "let ok1 = true;",
    cases: /^decode\/1$/,
    kernel: "decode-stream-portable",
    more: true,
  },
  {
    name: "a stream's scores are one thread's",
    from: "total += scores[",
    to: "total = scores[",
    cases: /^decode\/1$/,
    kernel: "decode-stream-portable",
  },
  {
    name: "pages of a stream all are the first",
    from: "+ at0 / p.pageSize];\n    let ok0",
    to: "];\n    let ok0",
    cases: /^paged\/64$/,
    kernel: "decode-stream-portable",
    more: true,
  },
];

describe.runIf(adapter === "swiftshader")("defects are seen", () => {
  it.each(mutations.filter(({ more }) => full || !more))("$name", async ({ from, to, cases, kernel }) => {
    let changed = 0;
    const backend = await backendOfAdapter(undefined, (device) => {
      const create = device.createShaderModule.bind(device);
      device.createShaderModule = (descriptor) => {
        const code = descriptor.code.replaceAll(from, to);
        if (code !== descriptor.code) changed++;
        return create({ ...descriptor, code });
      };
    });
    const kernels = kernel ? [kernel] : ["prefill-portable", "decode-portable"];
    const layouts = [kernel ? "contiguous" : "sliced"] as const;
    const report = await runConformance({ backend, cases, kernels, layouts, maxFailures: 1 });
    expect(changed).toBeGreaterThan(0);
    expect(report.failed).toBeGreaterThan(0);
  });
});
