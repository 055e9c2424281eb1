// The vector arithmetic of one instruction set against float64 and the scalar conversions. Included by
// simd_<isa>.cpp, which is compiled with that set's flags and defines TSR_VL and TSR_SET, the set's name; simd_main.cpp has
// main().
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // as in isa/kernels.inc.h
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "tessera/common/numeric.h"
#include "tessera/common/problem.h"
#include "simd_main.h"
#include "thread_pool.h"

namespace tsr::cpu {
namespace {

#include "isa/simd.inc.h"
#include "isa/scratch.inc.h"
#include "isa/tile.inc.h"
#if defined(TSR_PAIRS)
#include "isa/blocks.inc.h"
#include "isa/pairs.inc.h"
#endif
#if defined(TSR_BYTES)
#include "isa/decode_tile.inc.h"
#include "isa/bytes.inc.h"
#include "isa/decode_scores_bytes.inc.h"
#endif

int passed = 0;
int failed = 0;

void check(bool good, const char* what, double value) {
  good ? passed++ : failed++;
  if (!good) std::printf("FAILED %s (%g)\n", what, value);
}

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

void test_exp2() {
  double worst = 0;
  const uint32_t lowest = float_bits(-126.0f);
  // Every 61st float of [-126, -0].
  for (uint32_t bits = 0x80000000u; bits <= lowest; bits += 61) {
    const float x = bits_float(bits);
    const double exact = std::exp2(static_cast<double>(x));
    const double error = std::fabs(exp2_nonpositive(splat(x))[TSR_VL - 1] - exact) / exact;
    worst = error > worst ? error : worst;
  }
  check(worst <= 1.2e-7, "exp2: relative error", worst);
  check(exp2_nonpositive(splat(0.0f))[0] == 1.0f, "exp2(0) is exactly 1", exp2_nonpositive(splat(0.0f))[0]);
  check(exp2_nonpositive(splat(-kInf))[0] == 0.0f, "exp2(-inf) is 0", exp2_nonpositive(splat(-kInf))[0]);
  check(exp2_nonpositive(splat(-3e38f))[0] == 0.0f, "exp2(-3e38) is 0", exp2_nonpositive(splat(-3e38f))[0]);
  check(std::isnan(exp2_nonpositive(splat(NAN))[0]), "exp2(NaN) is NaN", 0);
}

void test_tanh() {
  double absolute = 0;
  double relative = 0;
  const uint32_t highest = float_bits(20.0f);
  for (uint32_t bits = 0x30000000u; bits <= highest; bits += 61) {
    for (const float x : {bits_float(bits), -bits_float(bits)}) {
      const double exact = std::tanh(static_cast<double>(x));
      const double error = std::fabs(tanh_vector(splat(x))[0] - exact);
      absolute = error > absolute ? error : absolute;
      const double share = error / std::fabs(exact);
      relative = share > relative ? share : relative;
    }
  }
  check(absolute <= 1.3e-7, "tanh: absolute error", absolute);
  check(relative <= 4e-7, "tanh: relative error", relative);
  check(tanh_vector(splat(1e30f))[0] == 1.0f, "tanh(1e30)", tanh_vector(splat(1e30f))[0]);
  check(tanh_vector(splat(-kInf))[0] == -1.0f, "tanh(-inf)", tanh_vector(splat(-kInf))[0]);
  check(std::isnan(tanh_vector(splat(NAN))[0]), "tanh(NaN)", 0);
}

void test_sixteen_bits() {
  int wrong_f16 = 0;
  int wrong_bf16 = 0;
  for (uint32_t h = 0; h < 65536; h++) {
    uint16_t in[TSR_VL];
    for (auto& x : in) x = static_cast<uint16_t>(h);
    wrong_f16 += !same(load_f16(in)[TSR_VL - 1], f16_to_f32(in[0]));
    wrong_bf16 += !same(load_bf16(in)[TSR_VL - 1], bf16_to_f32(in[0]));
  }
  check(wrong_f16 == 0, "load_f16: wrong values", wrong_f16);
  check(wrong_bf16 == 0, "load_bf16: wrong values", wrong_bf16);
  wrong_f16 = wrong_bf16 = 0;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 401) {
    const float x = bits_float(static_cast<uint32_t>(bits));
    uint16_t out[TSR_VL];
    store_f16(out, splat(x));
    const uint16_t f16 = f32_to_f16(x);
    wrong_f16 += std::isnan(x) ? (out[0] & 0x7fff) <= 0x7c00 : out[0] != f16 || out[TSR_VL - 1] != f16;
    store_bf16(out, splat(x));
    const uint16_t bf16 = f32_to_bf16(x);
    wrong_bf16 += std::isnan(x) ? (out[0] & 0x7fff) <= 0x7f80 : out[0] != bf16 || out[TSR_VL - 1] != bf16;
  }
  // Every fp16 value and its neighbours halfway: where rounding decides.
  for (uint32_t h = 0; h < 0x7c00; h++) {
    const float middle = (f16_to_f32(static_cast<uint16_t>(h)) + f16_to_f32(static_cast<uint16_t>(h + 1))) / 2;
    for (const float x : {std::nextafterf(middle, 0), middle, std::nextafterf(middle, 1e9f)}) {
      uint16_t out[TSR_VL];
      store_f16(out, splat(x));
      wrong_f16 += out[0] != f32_to_f16(x);
    }
  }
  check(wrong_f16 == 0, "store_f16: wrong values", wrong_f16);
  check(wrong_bf16 == 0, "store_bf16: wrong values", wrong_bf16);
}

/// convert_row and store_row at every length, with guards on both sides.
void test_rows() {
  int wrong = 0;
  int guards = 0;
  int specials = 0;
  for (const tsr_dtype dtype : {TSR_F32, TSR_F16, TSR_BF16, TSR_F8_E4M3, TSR_Q8_0, TSR_Q4_0}) {
    const int64_t step = is_block_format(dtype) ? 32 : 1;
    for (int64_t n = step; n <= 96; n += step) {
      std::vector<uint8_t> bytes(static_cast<size_t>(row_bytes(dtype, n)));
      for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<uint8_t>((i * 37 + 11) % 61);  // small, finite
      std::vector<float> row(static_cast<size_t>(n) + 2, 77.0f);
      specials += convert_row(dtype, bytes.data(), n, 0.5f, row.data() + 1);
      guards += row[0] != 77.0f || row[static_cast<size_t>(n) + 1] != 77.0f;
      std::vector<float> expected(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; i++) {
        const auto at = static_cast<size_t>(i);
        uint16_t half = 0;
        float full = 0;
        switch (dtype) {
          case TSR_F32:
            std::memcpy(&full, &bytes[at * 4], 4);
            expected[at] = full;
            break;
          case TSR_F16:
          case TSR_BF16:
            std::memcpy(&half, &bytes[at * 2], 2);
            expected[at] = dtype == TSR_F16 ? f16_to_f32(half) : bf16_to_f32(half);
            break;
          case TSR_F8_E4M3:
            expected[at] = f8_e4m3_to_f32(bytes[at]) * 0.5f;
            break;
          default: {
            const uint8_t* block = &bytes[at / 32 * (dtype == TSR_Q8_0 ? 34 : 18)];
            std::memcpy(&half, block, 2);
            const uint8_t byte = block[2 + (dtype == TSR_Q8_0 ? at % 32 : at % 16)];
            const int q = dtype == TSR_Q8_0 ? static_cast<int8_t>(byte) : (at % 32 < 16 ? byte & 15 : byte >> 4) - 8;
            expected[at] = f16_to_f32(half) * static_cast<float>(q);
          }
        }
        wrong += row[at + 1] != expected[at];
      }
      if (is_block_format(dtype) || dtype == TSR_F8_E4M3) continue;
      std::vector<uint8_t> back(bytes.size() + 2, 0xab);
      store_row(dtype, back.data() + 1, n, row.data() + 1);
      wrong += std::memcmp(back.data() + 1, bytes.data(), bytes.size()) != 0;
      guards += back.front() != 0xab || back.back() != 0xab;
      for (int64_t i = 0; i < n; i++) {  // one NaN anywhere is noticed
        std::vector<uint8_t> poisoned = bytes;
        std::memset(&poisoned[static_cast<size_t>(row_bytes(dtype, i))], 0xff,
                    static_cast<size_t>(row_bytes(dtype, 1)));
        wrong += !convert_row(dtype, poisoned.data(), n, 1.0f, row.data() + 1);
      }
    }
  }
  check(wrong == 0, "rows: wrong values", wrong);
  check(guards == 0, "rows: written past the end", guards);
  check(specials == 0, "rows: finite data taken for NaN", specials);
}

void test_transpose() {
  vf x[TSR_VL];
  vf sums[TSR_VL];
  int wrong = 0;
  for (int i = 0; i < TSR_VL; i++) {
    for (int j = 0; j < TSR_VL; j++) sums[i][j] = x[i][j] = static_cast<float>(100 * i + j);
  }
  transpose(x);
  for (int i = 0; i < TSR_VL; i++) {
    for (int j = 0; j < TSR_VL; j++) wrong += x[i][j] != static_cast<float>(100 * j + i);
  }
  check(wrong == 0, "transpose: wrong lanes", wrong);
  const vf each = sum_each(sums);
  wrong = 0;
  for (int i = 0; i < TSR_VL; i++)
    wrong += each[i] != static_cast<float>(TSR_VL * (100 * i) + TSR_VL * (TSR_VL - 1) / 2);
  check(wrong == 0, "sum_each: wrong sums", wrong);
  check(max_lanes(sums[1]) == static_cast<float>(100 + TSR_VL - 1), "max_lanes", max_lanes(sums[1]));
}

/// Rounding of pairs, and their dot product against float64: of numbers whose products and sums fp32 holds.
void test_pairs() {
  int wrong = 0;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4001) {
    const float x = bits_float(static_cast<uint32_t>(bits));
    const float y = bits_float(static_cast<uint32_t>(bits * 7 + 99));
    if (!std::isfinite(x) || !std::isfinite(y) || std::fabs(x) < 1e-37f || std::fabs(y) < 1e-37f) continue;
    const auto pair = static_cast<uint32_t>(to_pairs(splat(x), splat(y))[TSR_VL - 1]);
    wrong += (pair & 0xffff) != f32_to_bf16(x) || pair >> 16 != f32_to_bf16(y);
  }
  check(wrong == 0, "to_pairs: wrong values", wrong);
  wrong = 0;
  for (int n = 0; n < 1000; n++) {
    const auto number = [&](int k) { return static_cast<float>((n * (37 + k) + 11 * k) % 255 - 127); };
    const vi a = to_pairs(splat(number(1)), splat(number(2)));
    const vi b = to_pairs(splat(number(3)), splat(number(4)));
    wrong += pair_dot(a, b, splat(number(5)))[0] != number(1) * number(3) + number(2) * number(4) + number(5);
  }
  check(wrong == 0, "pair_dot: wrong sums", wrong);
}

#if defined(TSR_PAIRS)
/// A block of products against float64, with one to three pieces on either side.
void test_multiply() {
  constexpr int64_t kPairs = 48;
  constexpr int64_t kStride = 160;
  std::vector<uint16_t> left(3 * kPad * kStride);
  std::vector<uint32_t> right(3 * kPairs * kPanel);
  std::vector<float> sums(kPad * kPanel);
  [[maybe_unused]] const ProductScope scope{};
  for (int pieces = 1; pieces <= 9; pieces++) {
    const Factors f{left.data(),  kStride,         kPad * kStride,      (pieces - 1) / 3 + 1,
                    right.data(), kPairs * kPanel, (pieces - 1) % 3 + 1};
    std::vector<double> a(kPad * 2 * kPairs), b(2 * kPairs * kPanel);
    const auto split = [](double number, int count, auto&& put) {
      float rest = static_cast<float>(number);
      double whole = 0;
      for (int i = 0; i < count; i++) {
        const uint16_t piece = f32_to_bf16(rest);
        put(i, piece);
        rest -= bf16_to_f32(piece);
        whole += static_cast<double>(bf16_to_f32(piece));
      }
      return whole;
    };
    for (int64_t i = 0; i < kPad * 2 * kPairs; i++) {
      a[static_cast<size_t>(i)] = split(std::sin(0.7 * static_cast<double>(i)), f.left_pieces, [&](int n, uint16_t x) {
        left[static_cast<size_t>((n * kPad + i / (2 * kPairs)) * kStride + i % (2 * kPairs))] = x;
      });
    }
    for (int64_t i = 0; i < 2 * kPairs * kPanel; i++) {
      const int64_t k = i / kPanel;
      b[static_cast<size_t>(i)] = split(std::cos(1.3 * static_cast<double>(i)), f.right_pieces, [&](int n, uint16_t x) {
        uint32_t& both = right[static_cast<size_t>((n * kPairs + k / 2) * kPanel + i % kPanel)];
        both = k % 2 == 0 ? (both & 0xffff0000u) | x : (both & 0xffffu) | static_cast<uint32_t>(x) << 16;
      });
    }
    multiply_block(f, 0, kPairs, sums.data());
    double worst = 0;
    for (int64_t row = 0; row < kPad; row++) {
      for (int64_t lane = 0; lane < kPanel; lane++) {
        double exact = 0;
        for (int64_t k = 0; k < 2 * kPairs; k++) {
          exact += a[static_cast<size_t>(row * 2 * kPairs + k)] * b[static_cast<size_t>(k * kPanel + lane)];
        }
        const double error = std::fabs(static_cast<double>(sums[static_cast<size_t>(row * kPanel + lane)]) - exact);
        worst = error > worst ? error : worst;
      }
    }
    check(worst <= 1e-5, "multiply_block: error of a sum of 96 products", worst);
  }
}
#endif

#if defined(TSR_BYTES)
#include "bytes.inc.h"
#endif

[[gnu::noinline]] int run() {
#if defined(TSR_BYTES)
  test_bytes();
#endif
  test_transpose();
  test_pairs();
#if defined(TSR_PAIRS)
  test_multiply();
#endif
  test_exp2();
  test_tanh();
  test_sixteen_bits();
  test_rows();
  std::printf("::tessera {\"passed\":%d,\"failed\":%d,\"skipped\":0}\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace

const char* const kTestedSet = TSR_SET;
int test_set() { return run(); }

}  // namespace tsr::cpu
