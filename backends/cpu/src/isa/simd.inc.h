// Vectors of TSR_VL floats and the arithmetic that kernels need, for the instruction set that the including file is
// compiled for. GCC/Clang vector extensions carry almost all of it; intrinsics appear only where those miss an
// instruction (fma, max with IEEE operand order, F16C).
//
// Everything here is in an anonymous namespace: a function compiled for one instruction set must not be linked into
// another's code (tested by cpu/isa-symbols).

using vf = float __attribute__((vector_size(TSR_VL * 4)));
using vi = int32_t __attribute__((vector_size(TSR_VL * 4)));
using vu = uint32_t __attribute__((vector_size(TSR_VL * 4)));
// Tensors may begin at any byte, so what reads and writes them takes an untyped pointer and promises no alignment.
// A typedef: in a using, Clang ignores the alignment.
typedef float vf_unaligned __attribute__((vector_size(TSR_VL * 4), aligned(1), may_alias));
using vu16 = uint16_t __attribute__((vector_size(TSR_VL * 2)));
using vi8 = int8_t __attribute__((vector_size(TSR_VL)));
using vu8 = uint8_t __attribute__((vector_size(TSR_VL)));

#define TSR_SIMD [[gnu::always_inline]] inline

constexpr float kInf = __builtin_inff();
constexpr float kLog2e = 1.4426950408889634f;
constexpr double kLn2 = 0.6931471805599453;

TSR_SIMD vf load(const void* p) { return *static_cast<const vf_unaligned*>(p); }
TSR_SIMD void store(void* p, vf x) { *static_cast<vf_unaligned*>(p) = x; }
TSR_SIMD vf splat(float x) {
#if defined(__AVX512F__) && TSR_VL == 16
  return _mm512_set1_ps(x);
#elif defined(__AVX__) && TSR_VL == 8
  return _mm256_set1_ps(x);
#else
  return vf{x, x, x, x};
#endif
}
TSR_SIMD vi splat_int(int32_t x) { return vi{} + x; }
TSR_SIMD vi bits(vf x) { return (vi)x; }
TSR_SIMD vf from_bits(vi x) { return (vf)x; }
/// mask ? a : b for each lane; mask lanes are 0 or -1.
TSR_SIMD vf select(vi mask, vf a, vf b) { return from_bits((mask & bits(a)) | (~mask & bits(b))); }

/// a * b + c, rounded once.
TSR_SIMD vf fma(vf a, vf b, vf c) {
#if defined(__AVX512F__) && TSR_VL == 16
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__) && TSR_VL == 8
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__ARM_NEON) && TSR_VL == 4
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}

/// a > b ? a : b, so a NaN in b comes through and a NaN in a is dropped (x86's rule).
TSR_SIMD vf max_or_second(vf a, vf b) {
#if defined(__AVX512F__) && TSR_VL == 16
  return _mm512_max_ps(a, b);
#elif defined(__AVX__) && TSR_VL == 8
  return _mm256_max_ps(a, b);
#elif defined(__SSE2__) && TSR_VL == 4
  return _mm_max_ps(a, b);
#else
  return select(a > b, a, b);
#endif
}

TSR_SIMD bool any(vi mask) {
#if defined(__AVX512F__) && TSR_VL == 16
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX__) && TSR_VL == 8
  return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#else
  int32_t all = 0;
  for (int i = 0; i < TSR_VL; i++) all |= mask[i];
  return all != 0;
#endif
}

/// Sum of the lanes, halves first: one order for every vector of a set.
TSR_SIMD float sum_lanes(vf x) {
#if defined(__AVX__)
#if TSR_VL == 16
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), (__m256)_mm512_extractf64x4_pd((__m512d)x, 1));
#else
  const __m256 eight = x;
#endif
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
  return (x[0] + x[2]) + (x[1] + x[3]);
#endif
}

/// Largest lane; NaN lanes are dropped.
TSR_SIMD float max_lanes(vf x) {
#if defined(__AVX__)
#if TSR_VL == 16
  const __m256 upper = (__m256)_mm512_extractf64x4_pd((__m512d)x, 1);
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), upper);
#else
  const __m256 eight = x;
#endif
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
#else
  const float even = x[0] > x[2] ? x[0] : x[2];
  const float odd = x[1] > x[3] ? x[1] : x[3];
  return even > odd ? even : odd;
#endif
}

/// One step of sum_each: folds neighbouring groups of lanes, those of `a` beside those of `b`.
#if TSR_VL == 16
TSR_SIMD vf fold_16(vf a, vf b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
         __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
}
TSR_SIMD vf fold_8(vf a, vf b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27) +
         __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
}
TSR_SIMD vf fold_4(vf a, vf b) {
  return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
         __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
TSR_SIMD vf fold_2(vf a, vf b) {
  return __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
         __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
}
#elif TSR_VL == 8
TSR_SIMD vf fold_8(vf a, vf b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}
TSR_SIMD vf fold_4(vf a, vf b) {
  return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +
         __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
}
TSR_SIMD vf fold_2(vf a, vf b) {
  return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
         __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}
#else
TSR_SIMD vf fold_4(vf a, vf b) {
  return __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
}
TSR_SIMD vf fold_2(vf a, vf b) {
  return __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
}
#endif

/// Lane i of the result is the sum of the lanes of x[i]: TSR_VL sums for the shuffles of a transpose, where one by one
/// each would cost log2(TSR_VL) of its own. Every sum is made in the same order.
TSR_SIMD vf sum_each(const vf (&x)[TSR_VL]) {
  vf four[4];  // lanes 4m to 4m + 3 of four[n]: what is left of x[4m + n]
#pragma GCC unroll 4
  for (int n = 0; n < 4; n++) {
#if TSR_VL == 16
    four[n] = fold_8(fold_16(x[n], x[n + 8]), fold_16(x[n + 4], x[n + 12]));
#elif TSR_VL == 8
    four[n] = fold_8(x[n], x[n + 4]);
#else
    four[n] = x[n];
#endif
  }
  return fold_2(fold_4(four[0], four[1]), fold_4(four[2], four[3]));
}

/// Half of a step of transpose: lanes of `a` and `b` whose number has bit S trade places.
template <int S, bool kUpper, int... kLanes>
TSR_SIMD vf swap_lanes(vf a, vf b, std::integer_sequence<int, kLanes...>) {
  return __builtin_shufflevector(
      a, b, (kUpper ? (kLanes & S ? TSR_VL + kLanes : kLanes + S) : (kLanes & S ? TSR_VL + kLanes - S : kLanes))...);
}

template <int S>
TSR_SIMD void transpose_step(vf (&x)[TSR_VL]) {
  constexpr std::make_integer_sequence<int, TSR_VL> kLanes{};
#pragma GCC unroll 16
  for (int i = 0; i < TSR_VL; i++) {
    if (i & S) continue;
    const vf a = x[i];
    const vf b = x[i + S];
    x[i] = swap_lanes<S, false>(a, b, kLanes);
    x[i + S] = swap_lanes<S, true>(a, b, kLanes);
  }
}

/// Lane j of x[i] and lane i of x[j] trade places.
TSR_SIMD void transpose(vf (&x)[TSR_VL]) {
#if TSR_VL >= 16
  transpose_step<8>(x);
#endif
#if TSR_VL >= 8
  transpose_step<4>(x);
#endif
  transpose_step<2>(x);
  transpose_step<1>(x);
}

/// 2^x for x <= 127; below -126 the result is flushed to 0 (-inf too), NaN stays NaN. Relative error <= 1.2e-7:
/// 2e-9 of the degree-6 minimax polynomial on [-1/2, 1/2] and the rounding of its evaluation
/// (tests/simd.inc.h walks the range).
TSR_SIMD vf exp2_nonpositive(vf x) {
  x = max_or_second(splat(-127.0f), x);
  const vf shifter = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const vf shifted = x + shifter;
  const vf f = x - (shifted - shifter);
  vf y = splat(1.5345811e-4f);
  y = fma(y, f, splat(1.33999312e-3f));
  y = fma(y, f, splat(9.61848896e-3f));
  y = fma(y, f, splat(5.55032878e-2f));
  y = fma(y, f, splat(2.40226469e-1f));
  y = fma(y, f, splat(6.93147206e-1f));
  y = fma(y, f, splat(1.0f));
  // Exponent field of 2^n is n + 127, so n = -127 gives +0; the shift drops the shifter's own bits. Unsigned, as a NaN's bits may
  // be INT32_MAX.
  const vf power = (vf)(((vu)shifted + 127u) << 23);
  return y * power;
}

/// tanh(x), absolute error <= 1.3e-7, relative error <= 4e-7 near 0. NaN stays NaN.
TSR_SIMD vf tanh_vector(vf x) {
  const vi sign = bits(x) & splat_int(INT32_MIN);
  const vf a = from_bits(bits(x) & splat_int(INT32_MAX));
  // |x| < 0.63: x + x^3 P(x^2), P a minimax fit of degree 5 on [0, 0.4].
  const vf z = a * a;
  vf p = splat(2.27564292e-3f);
  p = fma(p, z, splat(-8.32931433e-3f));
  p = fma(p, z, splat(2.17646386e-2f));
  p = fma(p, z, splat(-5.39587641e-2f));
  p = fma(p, z, splat(1.33333016e-1f));
  p = fma(p, z, splat(-3.33333332e-1f));
  const vf near = fma(a * z, p, a);
  // Elsewhere (1 - e) / (1 + e) with e = exp(-2|x|), which can't overflow.
  const vf e = exp2_nonpositive(a * splat(-2.0f * kLog2e));
  const vf far = (splat(1.0f) - e) / (splat(1.0f) + e);
  return from_bits(bits(select(a < splat(0.625f), near, far)) | sign);
}

// ------------------------------------------------------------------------------------------- 16- and 8-bit floats

TSR_SIMD vi widen(const void* p) {
#if defined(__AVX512F__) && TSR_VL == 16
  return (vi)_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
#elif defined(__AVX2__) && TSR_VL == 8
  return (vi)_mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
#else
  vu16 h;
  __builtin_memcpy(&h, p, sizeof h);
  return __builtin_convertvector(h, vi);
#endif
}

TSR_SIMD void narrow(void* p, vi x) {
  const vu16 h = __builtin_convertvector(x, vu16);
  __builtin_memcpy(p, &h, sizeof h);
}

/// TSR_VL bytes, signed or not, as 32-bit integers.
TSR_SIMD vi widen_i8(const uint8_t* p) {
#if defined(__AVX512F__) && TSR_VL == 16
  return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__) && TSR_VL == 8
  return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  vi8 b;
  __builtin_memcpy(&b, p, sizeof b);
  return __builtin_convertvector(b, vi);
#endif
}
TSR_SIMD vi widen_u8(const uint8_t* p) {
#if defined(__AVX512F__) && TSR_VL == 16
  return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__) && TSR_VL == 8
  return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  vu8 b;
  __builtin_memcpy(&b, p, sizeof b);
  return __builtin_convertvector(b, vi);
#endif
}

/// table[n] for each lane's low four bits n.
#if defined(__AVX512F__) && TSR_VL == 16
TSR_SIMD vf look_up(vi n, vf table) { return _mm512_permutexvar_ps((__m512i)n, table); }
#endif

TSR_SIMD vf load_f16(const void* p) {
#if defined(__AVX512F__) && TSR_VL == 16
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
#elif defined(__F16C__) && TSR_VL == 8
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
#else
  const vi h = widen(p);
  const vi sign = (h & splat_int(0x8000)) << 16;
  const vi magnitude = (h & splat_int(0x7fff)) << 13;
  // Reads the fp16 exponent and mantissa as a tiny fp32 and scales it up by 2^112: exact, subnormals included.
  const vi finite = bits(from_bits(magnitude) * splat(0x1p112f));
  const vi special = magnitude | splat_int(0x7f800000);
  const vi is_special = magnitude >= splat_int(0x7c00 << 13);
  return from_bits(sign | (is_special & special) | (~is_special & finite));
#endif
}

/// Round to nearest even; overflow gives infinity, NaN a quiet NaN.
TSR_SIMD void store_f16(void* p, vf x) {
#if defined(__AVX512F__) && TSR_VL == 16
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__) && TSR_VL == 8
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#else
  const vi sign = (bits(x) >> 16) & splat_int(0x8000);
  const vi a = bits(x) & splat_int(INT32_MAX);
  // Normal: rebias the exponent, add half an ulp (less one if even), drop 13 bits. A carry rightly reaches the exponent.
  const vi odd = (a >> 13) & splat_int(1);
  const vi normal = (a - splat_int((127 - 15) << 23) + splat_int(0xfff) + odd) >> 13;
  // Below 2^-14: adding 0.5 leaves the rounded fp16 subnormal in the low bits.
  const vi subnormal = bits(from_bits(a) + splat(0.5f)) - splat_int(0x3f000000);
  const vi is_small = a < splat_int(0x38800000);
  const vi is_large = a >= splat_int(0x477ff000);  // 65520 and up round to infinity
  const vi is_nan = a > splat_int(0x7f800000);
  vi h = (is_small & subnormal) | (~is_small & normal);
  h = (is_large & splat_int(0x7c00)) | (~is_large & h);
  h = (is_nan & splat_int(0x7e00)) | (~is_nan & h);
  narrow(p, h | sign);
#endif
}

TSR_SIMD vf load_bf16(const void* p) { return from_bits(widen(p) << 16); }

TSR_SIMD void store_bf16(void* p, vf x) {
  const vi a = bits(x) & splat_int(INT32_MAX);
  const vi quiet = ((bits(x) >> 16) & splat_int(0xffff)) | splat_int(0x40);
  const vi is_nan = a > splat_int(0x7f800000);
  const vi number = ~is_nan & bits(x);  // without NaN's bits, rounding up can't overflow
  const vi odd = (number >> 16) & splat_int(1);
  const vi rounded = ((number + splat_int(0x7fff) + odd) >> 16) & splat_int(0xffff);
  narrow(p, (is_nan & quiet) | rounded);
}

TSR_SIMD vf load_f8(const uint8_t* p) {
  const vi u = widen_u8(p);
  const vi magnitude = u & splat_int(0x7f);
  // A subnormal becomes a number by conversion: as bits it would be one of fp32's, which processors multiply slowly.
  const vf normal = from_bits((magnitude << 20) + splat_int(120 << 23));
  const vf finite = select(magnitude < 8, __builtin_convertvector(magnitude, vf) * splat(0x1p-9f), normal);
  const vi is_nan = magnitude == splat_int(0x7f);
  return from_bits(((u & splat_int(0x80)) << 24) | (is_nan & splat_int(0x7fc00000)) | (~is_nan & bits(finite)));
}

/// Scalar fp16 of a quantised block's scale.
TSR_SIMD float scalar_f16(const uint8_t* p) {
#if defined(__F16C__)
  uint16_t bits16;
  __builtin_memcpy(&bits16, p, 2);
  return _cvtsh_ss(bits16);
#else
  uint16_t h[TSR_VL] = {};
  __builtin_memcpy(h, p, 2);
  return load_f16(h)[0];
#endif
}

// ------------------------------------------------------------------------------------------------- pairs of bf16

/// Two bf16 in each 32-bit lane, rounded to nearest even from `low` and `high`. Subnormal results may become 0.
TSR_SIMD vi to_pairs(vf low, vf high) {
#if defined(__AVX512BF16__) && TSR_VL == 16
  const auto both = (__m512i)_mm512_cvtne2ps_pbh(high, low);  // sixteen of low, then sixteen of high
  alignas(64) static constexpr uint16_t kOrder[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return (vi)_mm512_permutexvar_epi16(_mm512_load_si512(kOrder), both);
#else
  const auto rounded = [](vf x) {
    const vi is_nan = (bits(x) & splat_int(INT32_MAX)) > splat_int(0x7f800000);
    const vi number = ~is_nan & bits(x);
    const vi odd = (number >> 16) & splat_int(1);
    return (is_nan & splat_int(0x7fc00000)) | (number + splat_int(0x7fff) + odd);
  };
  return ((rounded(low) >> 16) & splat_int(0xffff)) | (rounded(high) & splat_int(-65536));
#endif
}
TSR_SIMD vf load_bits(const void* p) {
  vf x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
TSR_SIMD void store_bits(void* p, vf x) { __builtin_memcpy(p, &x, sizeof x); }
/// The bf16 nearest to x, as fp32. Not for NaN; subnormal results may become 0.
TSR_SIMD vf nearest_bf16(vf x) {
#if defined(__AVX512BF16__) && TSR_VL == 16
  return from_bits((vi)_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x)) << 16);
#else
  const vi odd = (bits(x) >> 16) & splat_int(1);
  return from_bits((bits(x) + splat_int(0x7fff) + odd) & splat_int(-65536));
#endif
}
TSR_SIMD vf low_of(vi pairs) { return from_bits(pairs << 16); }
TSR_SIMD vf high_of(vi pairs) { return from_bits(pairs & splat_int(-65536)); }

/// c + a.low * b.low + a.high * b.high in fp32. Hardware takes subnormal operands, and gives subnormal results, as 0.
TSR_SIMD vf pair_dot(vi a, vi b, vf c) {
#if defined(__AVX512BF16__) && TSR_VL == 16
  return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && TSR_VL == 4
  return vbfdotq_f32(c, (bfloat16x8_t)a, (bfloat16x8_t)b);
#else
  return fma(high_of(a), high_of(b), fma(low_of(a), low_of(b), c));
#endif
}
