/** Bytes from anywhere to anywhere: what queue copies, which want multiples of four, can't do. A thread a word. */
import { words } from "./elements.js";
import { declareParams, type Fields } from "./fields.js";

export const moveFields = { begin: "u32", goal: "u32", bytes: "u32", gridWidth: "u32" } as const satisfies Fields;

export const moveShader = /* wgsl */ `
${declareParams(moveFields)}
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(7) var<storage, read_write> to_words: array<u32>;
${words("source")}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let word = (p.goal >> 2u) + (workgroup.x + workgroup.y * p.gridWidth) * 64u + thread;
  let begin = max(word * 4u, p.goal);
  let end = min(word * 4u + 4u, p.goal + p.bytes);
  if (begin >= end) { return; }
  let bits = source_word(p.begin + begin - p.goal) << ((begin & 3u) * 8u);
  var mask = 0xffffffffu << ((begin & 3u) * 8u);
  if (end < word * 4u + 4u) { mask &= (1u << ((end & 3u) * 8u)) - 1u; }
  to_words[word] = (to_words[word] & ~mask) | (bits & mask);
}
`;
