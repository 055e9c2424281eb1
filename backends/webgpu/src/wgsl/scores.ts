/** Where keys lie, and what options make of a query-key pair's score. */

export const keyPlaces = /* wgsl */ `
/** Element of key j's row. */
fn key_element(s: Sequence, b: u32, j: u32, batch: u32, row: u32) -> u32 {
  if (p.pageSize == 0u) { return b * batch + (s.keyRow + j) * row; }
  let page = aux[p.atPages + b * p.pagesStride + j / p.pageSize];
  return page * batch + (j % p.pageSize) * row;
}

fn key_here(b: u32, j: u32) -> bool {
  if (p.pageSize == 0u) { return true; }
  let page = aux[p.atPages + b * p.pagesStride + j / p.pageSize];
  return page >= p.firstPage && page < p.endPage;
}
`;

export const pairScore = /* wgsl */ `
/** tanh, also near 0, where 1 - exp(-2x) would lose its digits. */
fn tanh_exact(x: f32) -> f32 {
  let a = abs(x);
  let a2 = a * a;
  if (a < 0.3) {
    return x * (1.0 + a2 * (-0.33333333 + a2 * (0.13333333 + a2 * (-0.053968254 + a2 * (0.021869488 - a2 * 0.008863235)))));
  }
  let e = exp2(-2.0 * log2e * a);
  return sign(x) * (1.0 - e) / (1.0 + e);
}

/** A bias in f32's bits, whatever its type. */
fn bias_bits(e: u32) -> u32 {
  if (p.biasType == 1u) { return bias[(p.biasBase + 4u * e) >> 2u]; }
  let half = bias_word(p.biasBase + 2u * e) & 0xffffu;
  if (p.biasType == 3u) { return half << 16u; }
  if ((half & 0x7fffu) == 0x7c00u) { return ((half & 0x8000u) << 16u) | 0x7f800000u; }
  return bitcast<u32>(unpack2x16float(half).x);
}

/** A score in base 2, of a scaled product, and whether bias and mask let it be seen. */
struct Pair { score: f32, seen: bool }
fn pair_score(s: Sequence, b: u32, head: u32, query: u32, key: i32, product: f32) -> Pair {
  var x = product;
  if (p.softcap > 0.0) { x = p.softcap * tanh_exact(x / p.softcap); }
  if (p.biasType != 0u) {
    let bits = bias_bits(b * p.biasBatch + head * p.biasHead + query * p.biasRow + u32(key) - p.biasFirst);
    if (bits == 0xff800000u) { return Pair(0.0, false); }
    if ((bits & 0x7fffffffu) < 0x7f800000u) { x += clamp(bitcast<f32>(bits), -8.507059e37, 8.507059e37); }
    else { x = bitcast<f32>(bits); }
  }
  if (p.atAlibi != none) { x -= bitcast<f32>(aux[p.atAlibi + head]) * f32(abs(i32(query) + s.offset - key)); }
  if (p.hasMask == 1u) {
    let e = p.maskBase - p.maskFirst + b * p.maskBatch + head * p.maskHead + query * p.maskRow + u32(key);
    if ((mask_word(e) & 255u) == 0u) { return Pair(0.0, false); }
  }
  return Pair(x * log2e, true);
}
`;
