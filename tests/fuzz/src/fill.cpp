#include "fill.h"

#include <algorithm>
#include <cstring>

namespace fuzz {
namespace {

double draw(Values values, tsr_dtype t, Random& r) {
  const Format f = format_of(t == TSR_BOOL || is_block(t) ? TSR_F16 : t);
  const double smallest = std::ldexp(1, f.least_exponent - f.fraction);
  switch (values) {
    case Values::kSharp:
      return 3 * r.normal();
    case Values::kLarge:
      return 30 * r.normal();
    case Values::kSmall:
      return r.normal() * 0x1p-17;
    case Values::kSubnormal:
      return smallest * static_cast<double>(r.between(-(1 << f.fraction), 1 << f.fraction));
    case Values::kExtreme:
      return r.of({0.0, -0.0, smallest, -smallest, std::min(65504.0, f.largest), -std::min(65504.0, f.largest),
                   r.normal(), 1.0});
    case Values::kZero:
      return 0;
    default:
      return r.normal();
  }
}

void put(tsr_dtype t, uint8_t* at, double x) {
  const auto value = static_cast<float>(x);
  if (t == TSR_F32) {
    std::memcpy(at, &value, 4);
    return;
  }
  const uint32_t bits = encode_bits(t, x);
  at[0] = static_cast<uint8_t>(bits);
  if (t != TSR_F8_E4M3) at[1] = static_cast<uint8_t>(bits >> 8);
}

// Of f32, f16 and bf16, which have one.
void put_infinity(tsr_dtype t, uint8_t* at, bool positive) {
  const float infinity = positive ? INFINITY : -INFINITY;
  if (t == TSR_F32) {
    std::memcpy(at, &infinity, 4);
    return;
  }
  at[0] = t == TSR_F16 ? 0 : 0x80;
  at[1] = static_cast<uint8_t>((t == TSR_F16 ? 0x7c : 0x7f) | (positive ? 0 : 0x80));
}

void write_row(tsr_dtype t, uint8_t* at, int64_t width, Values values, double gain, Random& r) {
  if (!is_block(t)) {
    for (int64_t i = 0; i < width; i++) put(t, at + bytes_of(t, i), gain * draw(values, t, r));
    return;
  }
  for (int64_t block = 0; block < width / 32; block++, at += bytes_of(t, 32)) {
    // Scales by which quants of any size come out as large as asked.
    double d = gain * draw(values, t, r) / (t == TSR_Q8_0 ? 73 : 4.6);
    if (values == Values::kNormal && r.one_in(50)) d = 0;
    put(TSR_F16, at, d);
    for (int64_t i = 2; i < bytes_of(t, 32); i++) at[i] = static_cast<uint8_t>(r.bits());
  }
}

}  // namespace

Fill draw_fill(Random& r) {
  using V = Values;
  const auto score = [&] {
    return r.one_in(2) ? V::kNormal
                       : r.of({V::kSharp, V::kLarge, V::kSmall, V::kSubnormal, V::kExtreme, V::kZero, V::kNormal});
  };
  const V q = score(), k = r.one_in(6) ? r.of({V::kEqualRows, V::kOneHuge}) : score();
  const V v = r.one_in(2) ? V::kNormal : r.of({V::kLarge, V::kSmall, V::kSubnormal, V::kExtreme, V::kZero});
  return {q, k, v};
}

void fill(Tensor& t, Values values, Random& r) {
  const int64_t rows = t.rows(), huge = values == Values::kOneHuge && rows > 0 ? r.between(0, rows - 1) : -1;
  for (int64_t row = 0; row < rows; row++) {
    if (values == Values::kEqualRows && row > 0)
      std::memmove(t.row(row), t.row(0), static_cast<size_t>(t.row_bytes()));
    else
      write_row(t.dtype(), t.row(row), t.width(), values, row == huge ? 100 : 1, r);
  }
}

void poison_row(Tensor& t, int64_t row, Random& r) { poison_elements(t, row, 0, t.width(), r); }

void poison_elements(Tensor& t, int64_t row, int64_t begin, int64_t end, Random& r) {
  uint8_t* const at = t.row(row) + bytes_of(t.dtype(), begin);
  const int64_t bytes = bytes_of(t.dtype(), end) - bytes_of(t.dtype(), begin);
  const int kind = static_cast<int>(r.between(0, 3));
  const bool has_infinity = t.dtype() == TSR_F32 || t.dtype() == TSR_F16 || t.dtype() == TSR_BF16;
  if (kind == 0) {
    for (int64_t i = 0; i < bytes; i++) at[i] = static_cast<uint8_t>(r.bits());
  } else if (kind == 1 || !has_infinity) {
    std::memset(at, kPoison, static_cast<size_t>(bytes));
  } else {
    for (int64_t j = begin; j < end; j++) put_infinity(t.dtype(), t.row(row) + bytes_of(t.dtype(), j), kind == 2);
  }
}

void fill_bias(Tensor& t, Random& r) {
  const int kind = static_cast<int>(r.between(0, 5));
  const double largest = format_of(t.dtype()).largest;
  for (int64_t row = 0; row < t.rows(); row++) {
    for (int64_t j = 0; j < t.width(); j++) {
      const bool hit = r.one_in(3);
      const double x = kind == 0   ? r.normal()
                       : kind == 1 ? (hit ? -INFINITY : r.normal())
                       : kind == 2 ? (hit || row % 4 == 3 ? -largest : 0)
                       : kind == 3 ? (hit || row % 4 == 3 ? -1e4 : 0)
                       : kind == 4 ? (hit || row % 4 == 3 ? -INFINITY : 0)
                                   : (j == row * 5 % 7 ? largest : 0);
      if (std::isinf(x)) {
        put_infinity(t.dtype(), t.row(row) + bytes_of(t.dtype(), j), false);
      } else {
        put(t.dtype(), t.row(row) + bytes_of(t.dtype(), j), x);
      }
    }
  }
}

void fill_mask(Tensor& t, Random& r) {
  const int kind = static_cast<int>(r.between(0, 4));
  const int64_t queries = t.shape()[2], keys = t.shape()[3];
  for (int64_t row = 0; row < t.rows(); row++) {
    const int64_t i = row % queries;
    for (int64_t j = 0; j < keys; j++) {
      const bool seen = kind == 0   ? !r.one_in(3)
                        : kind == 1 ? r.one_in(16)
                        : kind == 2 ? i < queries / 2
                        : kind == 3 ? false
                                    : j <= i + keys - queries;
      t.row(row)[j] = seen ? static_cast<uint8_t>(r.between(1, 255)) : 0;  // anything but 0 is true
    }
  }
}

}  // namespace fuzz
