// Dot products of signed bytes in the lanes of a vector, and Q in blocks of 32 of them (docs/semantics.md, "Numbers").

using vb = int8_t __attribute__((vector_size(TSR_VL * 4)));

/// VNNI multiplies unsigned bytes by signed ones: keys are then raised by so much that they aren't negative, and `acc` of
/// byte_dot begins with what that adds, negative.
#if (defined(__AVX512VNNI__) && TSR_VL == 16) || (defined(__AVXVNNI__) && TSR_VL == 8)
constexpr bool kRaisedKeys = true;
#else
constexpr bool kRaisedKeys = false;
#endif

/// Each 32-bit lane: acc + the sum of the four products of its bytes. `q` is never -128.
TSR_SIMD vi byte_dot(vi acc, vi k, vi q) {
#if defined(__AVX512VNNI__) && TSR_VL == 16
  return (vi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)k, (__m512i)q);
#elif defined(__AVXVNNI__) && TSR_VL == 8
  return (vi)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)k, (__m256i)q);
#elif defined(__AVX2__) && TSR_VL == 8
  // |k| * (q with k's sign): two products of at most 128 * 127 fit 16 bits.
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)k), _mm256_sign_epi8((__m256i)q, (__m256i)k));
  return acc + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#elif defined(__ARM_FEATURE_DOTPROD) && TSR_VL == 4
  return vdotq_s32(acc, (int8x16_t)k, (int8x16_t)q);
#else
  for (int shift = 0; shift < 32; shift += 8) acc += ((k << shift) >> 24) * ((q << shift) >> 24);
  return acc;
#endif
}

/// Blocks of 32 elements whose sums share a vector: four lanes each.
constexpr int kBlocks = TSR_VL / 4;

/// Sixteen bytes from each of kBlocks addresses.
TSR_SIMD vi gather_16(const uint8_t* const (&from)[kBlocks], int64_t at) {
#if defined(__AVX2__) && TSR_VL >= 8
  const auto piece = [&](int n) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from[n] + at)); };
  const auto two = [&](int n) { return _mm256_inserti128_si256(_mm256_castsi128_si256(piece(n)), piece(n + 1), 1); };
#if TSR_VL == 16
  return (vi)_mm512_inserti64x4(_mm512_castsi256_si512(two(0)), two(2), 1);
#else
  return (vi)two(0);
#endif
#else
  vi x;
  __builtin_memcpy(&x, from[0] + at, sizeof x);
  return x;
#endif
}

/// The fp16 scales that blocks begin with, each in its block's four lanes.
TSR_SIMD vf block_scales(const uint8_t* const (&block)[kBlocks]) {
#if defined(__AVX2__) && TSR_VL >= 8
  const auto scale = [&](int n) {
    int16_t half;
    __builtin_memcpy(&half, block[n], sizeof half);
    return half;
  };
#if TSR_VL == 16
  const __m128i halves = _mm_setr_epi16(scale(0), scale(1), scale(2), scale(3), 0, 0, 0, 0);
  const __m512i order = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_ps(order, _mm512_castps128_ps512(_mm_cvtph_ps(halves)));
#else
  const __m128i halves = _mm_setr_epi16(scale(0), scale(1), 0, 0, 0, 0, 0, 0);
  const __m256i order = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_cvtph_ps(halves)), order);
#endif
#else
  return splat(scalar_f16(block[0]));
#endif
}

/// A vector's blocks of a stored row of K as bytes: elements 0 to 15 of each, and 16 to 31.
template <tsr_dtype T>
TSR_SIMD void load_bytes(const uint8_t* const (&block)[kBlocks], vi& low, vi& high) {
  if constexpr (T == TSR_Q8_0) {
    low = gather_16(block, 2);
    high = gather_16(block, 18);
    if constexpr (kRaisedKeys) {
      low ^= splat_int(static_cast<int32_t>(0x80808080u));
      high ^= splat_int(static_cast<int32_t>(0x80808080u));
    }
  } else {
    const vi both = gather_16(block, 2);
    low = both & splat_int(0x0f0f0f0f);
    high = (both >> 4) & splat_int(0x0f0f0f0f);
    if constexpr (!kRaisedKeys) {
      low = (vi)((vb)low - 8);
      high = (vi)((vb)high - 8);
    }
  }
}

/// How far load_bytes raises keys.
template <tsr_dtype T>
constexpr int kRaise = !kRaisedKeys    ? 0
                       : T == TSR_Q8_0 ? 128
                                       : 8;

/// Floats of kBlocks blocks of a row of Q: bytes of elements 0 to 15, of 16 to 31, what sums begin with, scales.
constexpr int64_t kGroupFloats = 4 * TSR_VL;
TSR_SIMD int64_t byte_groups(int64_t dim) { return (dim + 32 * kBlocks - 1) / (32 * kBlocks); }

/// Below, a block of Q counts as zeros: 127 / largest would not be finite.
constexpr float kSmallestBlock = 0x1p-119f;

/// A row of Q, `dim` (a multiple of 32) floats, as signed bytes: scale = largest / 127, each the nearest to x * (127 /
/// largest), even on a tie. A NaN or infinity anywhere makes its block's scale NaN. Where the row ends within a group, scales
/// are 0.
inline void quantise_row(const float* row, int64_t dim, int raise, float* to) {
  __builtin_memset(to, 0, static_cast<size_t>(byte_groups(dim) * kGroupFloats) * sizeof(float));
  for (int64_t n = 0; n < dim / 32; n++) {
    float largest = 0;
    bool finite = true;
    for (int i = 0; i < 32; i++) {
      const float x = __builtin_fabsf(row[n * 32 + i]);
      finite = finite && x < kInf;
      if (x > largest) largest = x;
    }
    const float inverse = finite && largest >= kSmallestBlock ? 127.0f / largest : 0.0f;
    float* group = to + n / kBlocks * kGroupFloats;
    const int64_t lane = n % kBlocks * 4;
    for (int i = 0; i < 32; i++) {
      const auto q = finite ? static_cast<int8_t>(__builtin_rintf(row[n * 32 + i] * inverse)) : int8_t{0};
      reinterpret_cast<int8_t*>(group + i / 16 * TSR_VL + lane)[i % 16] = q;
      reinterpret_cast<int32_t*>(group + 2 * TSR_VL + lane)[i % 16 / 4] -= raise * q;
    }
    for (int i = 0; i < 4; i++) {
      group[3 * TSR_VL + lane + i] = !finite ? __builtin_nanf("") : inverse == 0 ? 0.0f : largest / 127.0f;
    }
  }
}
