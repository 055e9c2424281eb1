#include "tessera/common/numeric.h"

#include <cmath>

#include "tessera/common/problem.h"

namespace tsr {
namespace {

template <class T>
T load(const unsigned char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void store(unsigned char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

struct Extreme {
  float magnitude = 0;
  float value = 0;  ///< signed, the first of that magnitude
  bool nan = false;
};

Extreme extreme(const float* values) {
  Extreme e;
  for (int64_t i = 0; i < kBlock; ++i) {
    const float magnitude = std::fabs(values[i]);
    if (std::isnan(magnitude)) e.nan = true;
    if (magnitude > e.magnitude) {
      e.magnitude = magnitude;
      e.value = values[i];
    }
  }
  return e;
}

// A scale that can't be inverted (0, or infinity for a block that holds one) leaves all q at zero: no cast of NaN.
float inverse(float scale) { return scale != 0 && std::isfinite(scale) ? 1.0f / scale : 0.0f; }

// Inverses of subnormal scales overflow; then 0 * inf = NaN must not reach the cast either.
float scaled(float value, float inverse) {
  const float s = value * inverse;
  return std::isfinite(s) ? s : 0.0f;
}

}  // namespace

void quantise_q8_0(const float* values, int64_t count, void* blocks) {
  auto* out = static_cast<unsigned char*>(blocks);
  for (int64_t i = 0; i < count; i += kBlock, out += kQ8Bytes) {
    const Extreme e = extreme(values + i);
    const float d = e.magnitude / 127.0f;
    const float id = e.nan ? 0.0f : inverse(d);
    store<uint16_t>(out, e.nan ? 0x7e00 : f32_to_f16(d));
    for (int64_t j = 0; j < kBlock; ++j) {
      store<int8_t>(out + 2 + j, static_cast<int8_t>(std::round(scaled(values[i + j], id))));
    }
  }
}

void quantise_q4_0(const float* values, int64_t count, void* blocks) {
  auto* out = static_cast<unsigned char*>(blocks);
  const auto nibble = [](float s) {
    const int q = static_cast<int>(s + 8.5f);
    return static_cast<unsigned>(q < 15 ? q : 15);
  };
  for (int64_t i = 0; i < count; i += kBlock, out += kQ4Bytes) {
    const Extreme e = extreme(values + i);
    const float d = e.value / -8.0f;
    const float id = e.nan ? 0.0f : inverse(d);
    store<uint16_t>(out, e.nan ? 0x7e00 : f32_to_f16(d));
    for (int64_t j = 0; j < kBlock / 2; ++j) {
      const unsigned low = nibble(scaled(values[i + j], id));
      const unsigned high = nibble(scaled(values[i + j + kBlock / 2], id));
      out[2 + j] = static_cast<unsigned char>(low | (high << 4));
    }
  }
}

void dequantise_q8_0(const void* blocks, int64_t count, float* values) {
  const auto* in = static_cast<const unsigned char*>(blocks);
  for (int64_t i = 0; i < count; i += kBlock, in += kQ8Bytes) {
    const float d = f16_to_f32(load<uint16_t>(in));
    for (int64_t j = 0; j < kBlock; ++j) values[i + j] = d * static_cast<float>(load<int8_t>(in + 2 + j));
  }
}

void dequantise_q4_0(const void* blocks, int64_t count, float* values) {
  const auto* in = static_cast<const unsigned char*>(blocks);
  for (int64_t i = 0; i < count; i += kBlock, in += kQ4Bytes) {
    const float d = f16_to_f32(load<uint16_t>(in));
    for (int64_t j = 0; j < kBlock / 2; ++j) {
      values[i + j] = d * static_cast<float>((in[2 + j] & 15) - 8);
      values[i + j + kBlock / 2] = d * static_cast<float>((in[2 + j] >> 4) - 8);
    }
  }
}

void load_row(tsr_dtype dtype, const void* row, int64_t count, float* values) {
  const auto* in = static_cast<const unsigned char*>(row);
  switch (dtype) {
    case TSR_F32:
      if (count > 0) std::memcpy(values, in, static_cast<size_t>(count) * 4);
      break;
    case TSR_F16:
      for (int64_t i = 0; i < count; ++i) values[i] = f16_to_f32(load<uint16_t>(in + i * 2));
      break;
    case TSR_BF16:
      for (int64_t i = 0; i < count; ++i) values[i] = bf16_to_f32(load<uint16_t>(in + i * 2));
      break;
    case TSR_F8_E4M3:
      for (int64_t i = 0; i < count; ++i) values[i] = f8_e4m3_to_f32(in[i]);
      break;
    case TSR_Q8_0:
      dequantise_q8_0(in, count, values);
      break;
    case TSR_Q4_0:
      dequantise_q4_0(in, count, values);
      break;
    default:
      break;
  }
}

void store_row(tsr_dtype dtype, const float* values, int64_t count, void* row) {
  auto* out = static_cast<unsigned char*>(row);
  switch (dtype) {
    case TSR_F32:
      if (count > 0) std::memcpy(out, values, static_cast<size_t>(count) * 4);
      break;
    case TSR_F16:
      for (int64_t i = 0; i < count; ++i) store(out + i * 2, f32_to_f16(values[i]));
      break;
    case TSR_BF16:
      for (int64_t i = 0; i < count; ++i) store(out + i * 2, f32_to_bf16(values[i]));
      break;
    case TSR_F8_E4M3:
      for (int64_t i = 0; i < count; ++i) out[i] = f32_to_f8_e4m3(values[i]);
      break;
    case TSR_Q8_0:
      quantise_q8_0(values, count, out);
      break;
    case TSR_Q4_0:
      quantise_q4_0(values, count, out);
      break;
    default:
      break;
  }
}

const char* dtype_name(tsr_dtype dtype) {
  switch (dtype) {
    case TSR_DTYPE_NONE:
      return "none";
    case TSR_F32:
      return "f32";
    case TSR_F16:
      return "f16";
    case TSR_BF16:
      return "bf16";
    case TSR_F8_E4M3:
      return "f8_e4m3";
    case TSR_Q8_0:
      return "q8_0";
    case TSR_Q4_0:
      return "q4_0";
    case TSR_BOOL:
      return "bool";
    case TSR_I32:
      return "i32";
    default:
      return "unknown";
  }
}

}  // namespace tsr
