// Matrix instructions of 32 x 32 on CDNA, and what a pipeline of them needs: operands of 16 values of k, rounding of pairs,
// copies straight into LDS. Layouts are from AMD's matrix instruction calculator; l = lane, e = element; a row of A, a column of
// B and D is l % 32:
//
//                     elements of A and B      rows of D
//   MFMA 32x32x8      k = 4 (l / 32) + e, 4    8 (e / 4) + 4 (l / 32) + e % 4, 16
//   MFMA 32x32x16     k = 8 (l / 32) + e, 8    the same                            (gfx950)
//
// The order of k is free as long as A and B agree: an operand here is a lane's eight elements, whatever 16 values of k they are.
// gfx950 takes it in one instruction, the others in two, of the first and of the last four.
#pragma once

#include "../common/convert.h"

#if defined(TSR_CDNA)
namespace tsr::hip::wide {

typedef float float16v __attribute__((ext_vector_type(16)));
typedef float16v Sum;    ///< 32 rows of a column, half of them in each of two lanes
typedef word4v Operand;  ///< eight 16-bit elements
constexpr int kSums = 16;

TSR_DEVICE int row_of(int lane, int e) { return 8 * (e / 4) + 4 * (lane / 32) + e % 4; }

#if defined(__gfx950__)
constexpr bool kWholeOperands = true;
constexpr int kCopyBytes = 16;
#else
constexpr bool kWholeOperands = false;
constexpr int kCopyBytes = 4;
#endif

TSR_DEVICE word2v first_half(Operand x) { return word2v{x[0], x[1]}; }
TSR_DEVICE word2v last_half(Operand x) { return word2v{x[2], x[3]}; }

struct Half {
  static constexpr Type kType = Type::kF16;
  /// P is kept 2^7 times as large, so that what is worth adding is no subnormal number: 2^-21 of a row's largest. With the
  /// 2^8 by which a maximum may be out of date it stays below 65,504.
  static constexpr float kShift = 7;
  TSR_DEVICE static Sum multiply(Operand a, Operand b, Sum c) {
#if defined(__gfx950__)
    return __builtin_amdgcn_mfma_f32_32x32x16_f16(bits_of<half8v>(a), bits_of<half8v>(b), c, 0, 0, 0);
#else
    c = __builtin_amdgcn_mfma_f32_32x32x8f16(bits_of<half4v>(first_half(a)), bits_of<half4v>(first_half(b)), c, 0, 0,
                                             0);
    return __builtin_amdgcn_mfma_f32_32x32x8f16(bits_of<half4v>(last_half(a)), bits_of<half4v>(last_half(b)), c, 0, 0,
                                                0);
#endif
  }
  /// Nearest. Not for NaN, whose row the sum shows.
  TSR_DEVICE static uint32_t round(float x, float y) {
#if defined(__gfx950__)
    return bits_of<uint32_t>(__builtin_convertvector((float2v{x, y}), half2v));
#else
    // Half of the last place, then truncation of both at once: a conversion that rounds takes the time of four.
    return bits_of<uint32_t>(__builtin_amdgcn_cvt_pkrtz(bits_of<float>(bits_of<uint32_t>(x) + 0x1000u),
                                                        bits_of<float>(bits_of<uint32_t>(y) + 0x1000u)));
#endif
  }
};

struct Brain {
  static constexpr Type kType = Type::kBF16;
  /// P is at most 1, however old the maximum: a sum in fp32 reaches as far as one of exact maxima does.
  static constexpr float kShift = -8;
  TSR_DEVICE static Sum multiply(Operand a, Operand b, Sum c) {
#if defined(__gfx950__)
    return __builtin_amdgcn_mfma_f32_32x32x16_bf16(bits_of<brain8v>(a), bits_of<brain8v>(b), c, 0, 0, 0);
#else
    c = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(bits_of<short4v>(first_half(a)), bits_of<short4v>(first_half(b)), c, 0,
                                                 0, 0);
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(bits_of<short4v>(last_half(a)), bits_of<short4v>(last_half(b)), c,
                                                    0, 0, 0);
#endif
  }
  TSR_DEVICE static uint32_t round(float x, float y) {
#if defined(__gfx950__) && defined(TSR_EMULATED)
    return ::tsr::emulation::brain_pair(x, y);
#elif defined(__gfx950__)
    return bits_of<uint32_t>(__builtin_convertvector((float2v{x, y}), brain2v));
#else
    return __builtin_amdgcn_perm(bits_of<uint32_t>(y) + 0x8000u, bits_of<uint32_t>(x) + 0x8000u, 0x07060302u);
#endif
  }
};

/// The larger of this lane's and of lane ^ 32's.
TSR_DEVICE float max_of_column(float x, int lane) {
#if defined(__gfx950__)
  static_cast<void>(lane);
  const auto both = __builtin_amdgcn_permlane32_swap(bits_of<uint32_t>(x), bits_of<uint32_t>(x), false, false);
  return larger(bits_of<float>(static_cast<uint32_t>(both[0])), bits_of<float>(static_cast<uint32_t>(both[1])));
#else
  return larger(x, from_lane(x, lane ^ 32));
#endif
}
TSR_DEVICE float sum_of_column(float x, int lane) { return x + from_lane(x, lane ^ 32); }

// Copies straight into LDS, kCopyBytes a lane. They are there behind wait_for_copies and a barrier. Not clang's builtin, after which the compiler waits at the next read of any LDS.
#if defined(__gfx950__)
#define TSR_COPY "global_load_lds_dwordx4 "
#define TSR_COPY_END "\n\t"
#elif defined(__gfx90a__)
#define TSR_COPY "global_load_dword "
#define TSR_COPY_END " lds\n\t"
#else
#define TSR_COPY "global_load_lds_dword "
#define TSR_COPY_END "\n\t"
#endif
// A word of m0 needs one wait state before its use, and a scalar register that a vector instruction wrote (one that the compiler
// had put by, say) five: the compiler, which counts them elsewhere, doesn't look into this (CDNA3 ISA guide, "manually inserted
// wait states").
#define TSR_COPY_TO "s_mov_b32 m0, %0\n\ts_nop 3\n\t"

/// Copy i of lane l: from `base` + offsets[i] + i * 64 * kCopyBytes to `to` + (i * 64 + l) * kCopyBytes; the instruction adds its
/// offset to either address (LLVM, llvm.amdgcn.global.load.lds). `base` and `to` are of the whole wavefront.
template <int kCopies>
TSR_DEVICE void copy_to_lds(const char* base, const uint32_t (&offsets)[kCopies], char* to) {
#if defined(TSR_EMULATED)
  for (int i = 0; i < kCopies; ++i) {
    ::tsr::emulation::copy_to_lds(base + offsets[i] + i * 64 * kCopyBytes, to + i * 64 * kCopyBytes, kCopyBytes);
  }
#else
#define TSR_COPY_I(i, at) TSR_COPY "%" #i ", %1" at TSR_COPY_END
  const uint32_t address = lds_address(to);
  if constexpr (kCopies == 8) {
    asm volatile(TSR_COPY_TO TSR_COPY_I(2, "") TSR_COPY_I(3, " offset:256") TSR_COPY_I(4, " offset:512")
                     TSR_COPY_I(5, " offset:768") TSR_COPY_I(6, " offset:1024") TSR_COPY_I(7, " offset:1280")
                         TSR_COPY_I(8, " offset:1536") TSR_COPY_I(9, " offset:1792")::"s"(address),
                 "s"(base), "v"(offsets[0]), "v"(offsets[1]), "v"(offsets[2]), "v"(offsets[3]), "v"(offsets[4]),
                 "v"(offsets[5]), "v"(offsets[6]), "v"(offsets[7])
                 : "memory");
  } else if constexpr (kCopies == 4) {
    asm volatile(TSR_COPY_TO TSR_COPY_I(2, "") TSR_COPY_I(3, " offset:256") TSR_COPY_I(4, " offset:512")
                     TSR_COPY_I(5, " offset:768")::"s"(address),
                 "s"(base), "v"(offsets[0]), "v"(offsets[1]), "v"(offsets[2]), "v"(offsets[3])
                 : "memory");
  } else if constexpr (kCopies == 2) {
    asm volatile(TSR_COPY_TO TSR_COPY_I(2, "") TSR_COPY_I(3, " offset:1024")::"s"(address), "s"(base), "v"(offsets[0]),
                 "v"(offsets[1])
                 : "memory");
  } else {
    static_assert(kCopies == 1, "write it down");
    asm volatile(TSR_COPY_TO TSR_COPY_I(2, "")::"s"(address), "s"(base), "v"(offsets[0]) : "memory");
  }
#undef TSR_COPY_I
#endif
}
#undef TSR_COPY
#undef TSR_COPY_END
#undef TSR_COPY_TO

/// vmcnt(0), and no other counter.
TSR_DEVICE void wait_for_copies() { __builtin_amdgcn_s_waitcnt(0x0f70); }

}  // namespace tsr::hip::wide
#endif
