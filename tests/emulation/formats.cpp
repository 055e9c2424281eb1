// The emulator's conversions of 8 bits, each of the 256 codes of either format against what its specification says in other words:
// a table of the values of one binade, and the codes that aren't numbers. Built for an architecture of each format.
#include "builtins.h"

#include <cstdio>

namespace {

int failures = 0;

void check(bool good, const char* what, unsigned code) {
  if (good) return;
  ++failures;
  std::printf("FAILED %s, code %#x\n", what, code);
}

// OCP: 0x08 is 2^-6, the least normal number, 0x01 is 2^-9, 0x7e is 448. fnuz: 0x08 is 2^-7, 0x01 is 2^-10, 0x7f is 240.
template <tsr::emulation::F8 kFormat>
void check_format(const char* name, double least, double most, unsigned last) {
  using tsr::emulation::f8_to_float;
  const bool ocp = kFormat == tsr::emulation::F8::kOcp;
  double expected = 0;
  for (unsigned code = 0; code <= last; ++code) {
    check(f8_to_float<kFormat>(code) == expected, name, code);
    if (code > 0 || ocp) {
      const float negative = f8_to_float<kFormat>(code | 0x80u);
      check(negative == -expected && std::signbit(negative), name, code | 0x80u);
    }
    // Steps are the least number up to twice the least normal one, and double from one binade to the next.
    expected += code < 16 ? least : std::ldexp(least, static_cast<int>(code / 8) - 1);
  }
  check(f8_to_float<kFormat>(last) == most, name, last);
  for (unsigned code = 0; code < 256; ++code) {
    const bool nan = ocp ? (code & 0x7fu) == 0x7fu : code == 0x80u;
    check(std::isnan(f8_to_float<kFormat>(code)) == nan, name, code);
  }
}

}  // namespace

int main() {
  using tsr::emulation::F8;
  check_format<F8::kOcp>("e4m3fn", 0x1p-9, 448, 0x7e);
  check_format<F8::kFnuz>("e4m3fnuz", 0x1p-10, 240, 0x7f);
  const auto pair = tsr::emulation::floats_of_f8<F8::kOcp>(0x38b84048, true);
  check(pair[0] == -1.0f && pair[1] == 1.0f, "the upper half of a word", 0);
  // fp16 by truncation: ties, subnormal numbers, the largest.
  using tsr::emulation::truncated_half;
  const struct {
    float x;
    unsigned bits;
  } halves[] = {{1.0f, 0x3c00},
                {0x1.ffcp0f, 0x3fff},
                {0x1.ffffp0f, 0x3fff},
                {-0x1.ffffp0f, 0xbfff},
                {0x1p-14f, 0x0400},
                {0x1.fffp-15f, 0x03ff},
                {0x1p-24f, 0x0001},
                {0x1.8p-24f, 0x0001},
                {0x1p-25f, 0x0000},
                {65504.0f, 0x7bff},
                {65535.0f, 0x7bff},
                {1e30f, 0x7bff},
                {__builtin_inff(), 0x7c00},
                {-0.0f, 0x8000}};
  for (const auto& half : halves) check(truncated_half(half.x) == half.bits, "v_cvt_pkrtz", half.bits);
  for (unsigned code = 0; code < 0x7c00; ++code) {
    const float value = static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(code)));
    check(truncated_half(value) == code, "v_cvt_pkrtz of what fp16 has", code);
  }
  std::printf("%d failed\n", failures);
  return failures != 0;
}
