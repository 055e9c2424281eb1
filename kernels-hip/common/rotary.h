// Angles of a rotary embedding in double, without a mathematics library: position * scale * theta^(-2i/dims), its cosine and
// sine.
#pragma once

#include "device.h"

namespace tsr::hip {

/// ratio^i by squaring: relative error below i * 2^-52.
TSR_DEVICE double power(double ratio, int i) {
  double result = 1, square = ratio;
  for (; i > 0; i >>= 1) {
    if (i & 1) result *= square;
    square *= square;
  }
  return result;
}

struct Turn {
  float cosine;
  float sine;
};

/// Good to 1e-9 for |angle| < 2^31, beyond what fp32 shows. pi/2 is taken off in three parts of 33 bits each, so that the first
/// two products are exact for a quadrant number of 20 bits or less and good enough up to 2^31; then Taylor series on
/// [-pi/4, pi/4], whose first terms left out are below 2e-13.
TSR_DEVICE Turn turn_of(double angle) {
  constexpr double kTwoOverPi = 0.63661977236758134308;
  constexpr double kFirst = 1.57079632673412561417, kSecond = 6.07710050630396597660e-11,
                   kThird = 2.02226624879595063154e-21;
  const double quadrant = __builtin_rint(angle * kTwoOverPi);
  double x = __builtin_fma(quadrant, -kFirst, angle);
  x = __builtin_fma(quadrant, -kSecond, x);
  x = __builtin_fma(quadrant, -kThird, x);
  const double y = x * x;
  double cosine = 1, sine = 1;  // of x, sine over x; by Horner's rule from the term of x^12
  TSR_UNROLL for (int n = 12; n > 0; n -= 2) {
    cosine = 1 - y / (n * (n - 1)) * cosine;
    sine = 1 - y / (n * (n + 1)) * sine;
  }
  sine *= x;
  const int quarter = static_cast<int>(static_cast<int64_t>(quadrant) & 3);
  const double c = quarter & 1 ? sine : cosine, s = quarter & 1 ? cosine : sine;
  return {static_cast<float>(quarter == 1 || quarter == 2 ? -c : c), static_cast<float>(quarter >= 2 ? -s : s)};
}

}  // namespace tsr::hip
