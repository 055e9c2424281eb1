/** As `large` of support.ts, for scripts. */
export function large(kernel) {
  const shape = [1, 64, 2, 8];
  const tensor = (data) => ({ data, byteOffset: 0, dtype: "f32", shape, strides: [1024, 16, 8, 1] });
  const input = () => tensor(new Float32Array(1024).fill(1));
  const result = new Float32Array(1024);
  return { q: input(), k: input(), v: input(), out: tensor(result), kernel, result };
}
