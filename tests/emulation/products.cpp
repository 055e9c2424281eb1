// The emulator's matrix instructions against D = A B + C, one element after the other, and what they make of subnormal numbers.
// Built for gfx90a, which takes those for 0, and for gfx942, which doesn't.
#include <cstdio>

#include "matrix.h"

namespace {

using namespace tsr::emulation;

#if defined(__gfx90a__)
constexpr bool kFlushes = true;
#else
constexpr bool kFlushes = false;
#endif
int failures = 0;

void check(bool good, const char* what, float got, float expected) {
  if (good) return;
  ++failures;
  std::printf("FAILED %s: %g, must be %g\n", what, static_cast<double>(got), static_cast<double>(expected));
}

template <int kCount>
using Halves = _Float16 __attribute__((ext_vector_type(kCount)));

/// A and B as a_of(row, k) and b_of(k, column) have them, C as c_of(row, column); D has to be d_of(row, column).
template <class Layout, int kEach, int kSums, class A, class B, class C, class D>
void check_product(const char* name, A a_of, B b_of, C c_of, D d_of) {
  typedef Operands<Halves<kEach>, Floats<kSums>> In;
  In in[Layout::kLanes];
  Floats<kSums> out[Layout::kLanes];
  const void* ins[Layout::kLanes];
  void* outs[Layout::kLanes];
  bool seen[Layout::kSide][Layout::kSide] = {};
  for (int lane = 0; lane < Layout::kLanes; ++lane) {
    const int n = lane % Layout::kSide;
    for (int e = 0; e < kEach; ++e) {
      in[lane].a[e] = static_cast<_Float16>(a_of(n, Layout::k_of(lane, e)));
      in[lane].b[e] = static_cast<_Float16>(b_of(Layout::k_of(lane, e), n));
    }
    for (int e = 0; e < kSums; ++e) in[lane].c[e] = c_of(Layout::row_of(lane, e), n);
    ins[lane] = in + lane;
    outs[lane] = out + lane;
  }
  multiply_matrices<Layout, HalfOperand, Halves<kEach>, Floats<kSums>>(ins, outs);
  for (int lane = 0; lane < Layout::kLanes; ++lane) {
    for (int e = 0; e < kSums; ++e) {
      const int i = Layout::row_of(lane, e), n = lane % Layout::kSide;
      const float expected = d_of(i, n);
      check(out[lane][e] == expected, name, out[lane][e], expected);
      check(!seen[i][n], "an element of D in two places", static_cast<float>(i), static_cast<float>(n));
      seen[i][n] = true;
    }
  }
}

template <class Layout, int kEach, int kSums>
void check_layout(const char* name) {
  const auto a = [](int i, int k) { return static_cast<float>((i * 7 + k * 3) % 11 - 5); };
  const auto b = [](int k, int n) { return static_cast<float>((k * 5 + n * 2) % 13 - 6); };
  const auto c = [](int i, int n) { return static_cast<float>(i - 2 * n); };
  const auto nothing = [](int, int) { return 0.0f; };
  check_product<Layout, kEach, kSums>(name, a, b, c, [&](int i, int n) {
    float d = c(i, n);
    for (int k = 0; k < Layout::kDepth; ++k) d += a(i, k) * b(k, n);
    return d;
  });
  // A subnormal operand: 2^-20, times 2^10, of each k.
  const auto small = [](int, int) { return 0x1p-20f; };
  const auto large = [](int, int) { return 0x1p10f; };
  check_product<Layout, kEach, kSums>(name, small, large, nothing,
                                      [](int, int) { return kFlushes ? 0.0f : Layout::kDepth * 0x1p-10f; });
  // The least normal one isn't, and a subnormal sum is.
  const auto least = [](int, int) { return 0x1p-14f; };
  check_product<Layout, kEach, kSums>(name, least, large, nothing, [](int, int) { return Layout::kDepth * 0x1p-4f; });
  check_product<Layout, kEach, kSums>(
      name, nothing, nothing, [](int, int) { return 0x1p-130f; }, [](int, int) { return kFlushes ? 0.0f : 0x1p-130f; });
}

}  // namespace

int main() {
  check_layout<Mfma16x16, 4, 4>("16x16x16");
  check_layout<Mfma32x8, 4, 16>("32x32x8");
  check_layout<Mfma32x16, 8, 16>("32x32x16");
  check_layout<Wmma11, 16, 8>("WMMA of gfx11");
  check_layout<Wmma12, 8, 8>("WMMA of gfx12");
  std::printf("%d failed\n", failures);
  return failures != 0;
}
