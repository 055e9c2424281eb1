// numeric.h against formulas of its own: every 16- and 8-bit value, every rounding boundary, ggml's blocks by hand.
#include "tessera/common/numeric.h"

#include <cmath>
#include <limits>
#include <vector>

#include "count.h"

namespace {

// A float format with `exponent_bits` and `mantissa_bits`, by the textbook. `ieee`: the top exponent means Inf and NaN.
double decode(unsigned bits, int exponent_bits, int mantissa_bits, bool ieee) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
  const double sign = (bits >> (exponent_bits + mantissa_bits)) & 1 ? -1 : 1;
  const int top = (1 << exponent_bits) - 1;
  if (ieee && exponent == top) return mantissa ? NAN : sign * INFINITY;
  if (!ieee && exponent == top && mantissa == (1 << mantissa_bits) - 1) return NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

// Every value reads as the textbook says and writes back as itself; between neighbours the nearer wins, and of two as
// near the even one.
template <class Bits, class Read, class Write>
void check_format(int exponent_bits, int mantissa_bits, bool ieee, Read read, Write write) {
  const unsigned count = 1u << (1 + exponent_bits + mantissa_bits), half = count / 2;
  bool reads = true, writes = true, rounds = true;
  for (unsigned n = 0; n < count; ++n) {
    const auto bits = static_cast<Bits>(n);
    const double expected = decode(n, exponent_bits, mantissa_bits, ieee);
    const float value = read(bits);
    if (std::isnan(expected)) {
      reads = reads && std::isnan(value);
      writes = writes && std::isnan(read(write(value)));
      continue;
    }
    reads = reads && value == expected && std::signbit(value) == std::signbit(expected);
    writes = writes && write(value) == bits;
  }
  for (unsigned n = 0; n + 1 < half; ++n) {
    const double low = decode(n, exponent_bits, mantissa_bits, ieee),
                 high = decode(n + 1, exponent_bits, mantissa_bits, ieee);
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const auto middle = static_cast<float>((low + high) / 2);  // exact
    const unsigned even = n % 2 ? n + 1 : n;
    for (const unsigned sign : {0u, half}) {
      const float s = sign ? -1.0f : 1.0f;
      rounds = rounds && write(s * middle) == (sign | even);
      rounds = rounds && write(s * std::nextafter(middle, 0.0f)) == (sign | n);
      rounds = rounds && write(s * std::nextafter(middle, INFINITY)) == (sign | (n + 1));
    }
  }
  CHECK(reads);
  CHECK(writes);
  CHECK(rounds);
}

void check_extremes() {
  const float most = std::numeric_limits<float>::max(), tiny = std::numeric_limits<float>::denorm_min();
  const float nans[] = {NAN, -NAN, tsr::bits_float(0x7f800001u), tsr::bits_float(0xffffffffu)};
  for (const float nan : nans) {
    CHECK(std::isnan(tsr::f16_to_f32(tsr::f32_to_f16(nan))));
    CHECK(std::isnan(tsr::bf16_to_f32(tsr::f32_to_bf16(nan))));
    CHECK(std::isnan(tsr::f8_e4m3_to_f32(tsr::f32_to_f8_e4m3(nan))));
  }
  CHECK(tsr::f32_to_f16(65519.996f) == 0x7bff && tsr::f32_to_f16(65520.0f) == 0x7c00 &&
        tsr::f32_to_f16(-most) == 0xfc00);
  CHECK(tsr::f32_to_f16(0x1p-25f) == 0 && tsr::f32_to_f16(std::nextafter(0x1p-25f, 1.0f)) == 1 &&
        tsr::f32_to_f16(-tiny) == 0x8000);
  CHECK(tsr::f32_to_bf16(most) == 0x7f80 && tsr::f32_to_bf16(-INFINITY) == 0xff80 && tsr::f32_to_bf16(tiny) == 0);
  CHECK(tsr::f32_to_f8_e4m3(448) == 0x7e && tsr::f32_to_f8_e4m3(449) == 0x7e && tsr::f32_to_f8_e4m3(1e30f) == 0x7e);
  CHECK(tsr::f32_to_f8_e4m3(INFINITY) == 0x7e && tsr::f32_to_f8_e4m3(-INFINITY) == 0xfe &&
        tsr::f32_to_f8_e4m3(-tiny) == 0x80);
}

// What the quantisers write is judged by reading the blocks by hand.
void check_blocks() {
  std::vector<float> values(64), back(64);
  uint32_t seed = 1;
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f * 5;
  }
  std::vector<unsigned char> blocks(68);
  tsr::quantise_q8_0(values.data(), 64, blocks.data());
  tsr::dequantise_q8_0(blocks.data(), 64, back.data());
  bool q8 = true, q8_reads = true;
  for (int b = 0; b < 2; ++b) {
    float largest = 0;
    for (int i = 0; i < 32; ++i) largest = std::fmax(largest, std::fabs(values[b * 32 + i]));
    const float d = largest / 127;
    const unsigned char* block = blocks.data() + b * 34;
    const float stored = tsr::f16_to_f32(static_cast<uint16_t>(block[0] | block[1] << 8));
    q8 = q8 && stored == tsr::f16_to_f32(tsr::f32_to_f16(d));
    for (int i = 0; i < 32; ++i) {
      const auto q = static_cast<int8_t>(block[2 + i]);
      q8 = q8 && q == static_cast<int>(std::round(values[b * 32 + i] * (1.0f / d)));
      q8_reads = q8_reads && back[b * 32 + i] == stored * q;
    }
  }
  CHECK(q8);
  CHECK(q8_reads);

  // q4_0: the value of largest magnitude, sign included, becomes -8; low nibbles are 0..15, high 16..31.
  for (int i = 0; i < 32; ++i) values[i] = static_cast<float>(i % 16) / 2 - 4;  // -4, -3.5, ..., 3.5
  tsr::quantise_q4_0(values.data(), 32, blocks.data());
  tsr::dequantise_q4_0(blocks.data(), 32, back.data());
  CHECK(tsr::f16_to_f32(static_cast<uint16_t>(blocks[0] | blocks[1] << 8)) == 0.5f);  // -4 / -8
  bool q4 = true, q4_reads = true;
  for (int i = 0; i < 16; ++i) {
    q4 = q4 && (blocks[2 + i] & 15) == i && blocks[2 + i] >> 4 == i;
    q4_reads = q4_reads && back[i] == values[i] && back[16 + i] == values[16 + i];
  }
  CHECK(q4);
  CHECK(q4_reads);
  for (int i = 1; i < 32; ++i) values[i] += i % 2 ? 0.2f : -0.2f;  // less than half a step: the nearest is the same
  values[16] = -4;
  tsr::quantise_q4_0(values.data(), 32, blocks.data());
  bool nearest = true;
  for (int i = 0; i < 16; ++i) nearest = nearest && (blocks[2 + i] & 15) == i && blocks[2 + i] >> 4 == i;
  CHECK(nearest);
  for (int i = 0; i < 32; ++i) values[i] = static_cast<float>(i % 16) / 2 - 4;
  for (float& value : values) value = -value;  // now 4 is the largest: d = -0.5, and -3.5 is out of range by one: 15
  values[3] = -100;
  values[19] = 90;
  tsr::quantise_q4_0(values.data(), 32, blocks.data());
  tsr::dequantise_q4_0(blocks.data(), 32, back.data());
  CHECK(back[3] == -100);
  CHECK((blocks[5] & 15) == 0 && blocks[5] >> 4 == 15 && back[19] == 87.5f);

  // Zeros, infinities and NaNs make no cast of what an integer can't hold, and a NaN shows.
  for (const float odd : {0.0f, INFINITY, -INFINITY, NAN, 1e-44f, 3e38f}) {
    for (float& value : values) value = 0;
    values[7] = odd;
    tsr::quantise_q8_0(values.data(), 32, blocks.data());
    tsr::dequantise_q8_0(blocks.data(), 32, back.data());
    CHECK(std::isnan(odd) ? std::isnan(back[7]) : odd == 0 ? back[7] == 0 : true);
    tsr::quantise_q4_0(values.data(), 32, blocks.data());
    tsr::dequantise_q4_0(blocks.data(), 32, back.data());
    CHECK(std::isnan(odd) ? std::isnan(back[7]) : odd == 0 ? back[7] == 0 : true);
  }
}

}  // namespace

int main() {
  check_format<uint16_t>(5, 10, true, tsr::f16_to_f32, tsr::f32_to_f16);
  check_format<uint16_t>(8, 7, true, tsr::bf16_to_f32, tsr::f32_to_bf16);
  check_format<uint8_t>(4, 3, false, tsr::f8_e4m3_to_f32, tsr::f32_to_f8_e4m3);
  check_extremes();
  check_blocks();
  return tsr::check::finish();
}
