// FLASH_ATTN_EXT nodes made by hand, what ggml's functions say about them, and their results in double precision.
#pragma once

#include "attention.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <vector>

using namespace tsr::ggml;

inline int failed = 0, passed = 0;
inline std::mt19937 random_bits(11);

inline void expect(bool good, const std::string& what) {
  good ? passed++ : failed++;
  if (!good) std::printf("FAILED: %s\n", what.c_str());
}

// A quantised type that the engine doesn't know: blocks of 32 bytes, value = byte / 16.
inline void bytes_to_float(const void* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = static_cast<const int8_t*>(from)[i] / 16.0f;
}

inline void stand_ins() {
  fn.op_name = [](enum ggml_op op) { return op == GGML_OP_FLASH_ATTN_EXT ? "FLASH_ATTN_EXT" : "NONE"; };
  fn.type_name = [](enum ggml_type type) {
    return type == GGML_TYPE_F32 ? "f32" : type == GGML_TYPE_F16 ? "f16" : type == GGML_TYPE_Q5_0 ? "q5_0" : "i32";
  };
  fn.type_size = [](enum ggml_type type) {
    return size_t(type == GGML_TYPE_Q5_0 ? 32 : type == GGML_TYPE_F16 ? 2 : 4);
  };
  fn.blck_size = [](enum ggml_type type) { return int64_t(type == GGML_TYPE_Q5_0 ? 32 : 1); };
  fn.get_type_traits = [](enum ggml_type type) {
    static ggml_type_traits quantised = {}, plain = {};
    quantised.type_name = "q5_0";
    quantised.blck_size = 32;
    quantised.is_quantized = true;
    quantised.to_float = bytes_to_float;
    return static_cast<const ggml_type_traits*>(type == GGML_TYPE_Q5_0 ? &quantised : &plain);
  };
}

/** A contiguous tensor of ggml's order and the values in it. */
struct Tensor {
  ggml_tensor t = {};
  std::vector<uint8_t> bytes;
  std::vector<float> values;

  Tensor(enum ggml_type type, std::vector<int64_t> ne, const std::function<float()>& value) {
    size_t count = 1;
    t.type = type;
    for (size_t i = 0; i < 4; i++) {
      t.ne[i] = ne[i];
      t.nb[i] = i == 0   ? fn.type_size(type)
                : i == 1 ? t.nb[0] * static_cast<size_t>(ne[0] / fn.blck_size(type))
                         : t.nb[i - 1] * static_cast<size_t>(ne[i - 1]);
      count *= static_cast<size_t>(ne[i]);
    }
    bytes.resize(t.nb[3] * static_cast<size_t>(ne[3]) + 64);
    values.resize(count);
    for (size_t i = 0; i < count; i++) {
      const float x = value();
      if (type == GGML_TYPE_F32) {
        std::memcpy(&bytes[4 * i], &x, 4);
      } else if (type == GGML_TYPE_F16) {
        const uint16_t half = to_half(x);
        std::memcpy(&bytes[2 * i], &half, 2);
      } else {
        bytes[i] = static_cast<uint8_t>(static_cast<int8_t>(std::lround(x * 16)));
      }
      values[i] = type == GGML_TYPE_F32   ? x
                  : type == GGML_TYPE_F16 ? std::isinf(x) ? x : x
                                          : static_cast<int8_t>(bytes[i]) / 16.0f;
    }
    t.data = bytes.data();
  }
  /** Of the few values that tests use, all of which fp16 holds: -inf, 0 and multiples of 1/16 below 16. */
  static uint16_t to_half(float x) {
    if (std::isinf(x)) return 0xfc00;
    if (x == 0) return 0;
    int exponent;
    const float fraction = std::frexp(std::fabs(x), &exponent);
    const auto bits = static_cast<uint16_t>((exponent + 14) << 10 | (static_cast<int>(fraction * 2048) & 1023));
    return static_cast<uint16_t>(bits | (x < 0 ? 0x8000 : 0));
  }
  double at(int64_t d, int64_t j, int64_t h, int64_t b) const {
    return values[static_cast<size_t>(((b * t.ne[2] + h) * t.ne[1] + j) * t.ne[0] + d)];
  }
};

struct Case {
  std::string name;
  int64_t batches = 1, queries = 5, keys = 32, heads = 4, kv_heads = 2, dim = 32, value_dim = 32;
  enum ggml_type type = GGML_TYPE_F16;
  int64_t mask_heads = 1, mask_batches = 1;
  /** What the mask holds for (batch, head, query, key); none: no mask. */
  std::function<float(int64_t, int64_t, int64_t, int64_t)> mask;
  float max_bias = 0, softcap = 0;
  bool sinks = false;
  int threads = 1;
  /** Counter that has to move. */
  const std::atomic<uint64_t>* counted = nullptr;
};

struct Problem {
  Tensor q, k, v, out;
  std::unique_ptr<Tensor> mask, sinks;
};

inline float sixteenths() { return static_cast<float>(static_cast<int>(random_bits() % 65) - 32) / 16; }

inline Problem make(const Case& c) {
  Problem p = {Tensor(GGML_TYPE_F32, {c.dim, c.queries, c.heads, c.batches}, sixteenths),
               Tensor(c.type, {c.dim, c.keys, c.kv_heads, c.batches}, sixteenths),
               Tensor(c.type, {c.value_dim, c.keys, c.kv_heads, c.batches}, sixteenths),
               Tensor(GGML_TYPE_F32, {c.value_dim, c.heads, c.queries, c.batches}, [] { return NAN; }),
               nullptr,
               nullptr};
  if (c.mask) {
    int64_t n = 0;
    p.mask = std::make_unique<Tensor>(
        GGML_TYPE_F16, std::vector<int64_t>{c.keys, c.queries, c.mask_heads, c.mask_batches}, [&] {
          const int64_t i = n++;
          const int64_t row = i / c.keys, head = row / c.queries;
          return c.mask(head / c.mask_heads, head % c.mask_heads, row % c.queries, i % c.keys);
        });
  }
  if (c.sinks) p.sinks = std::make_unique<Tensor>(GGML_TYPE_F32, std::vector<int64_t>{c.heads, 1, 1, 1}, sixteenths);
  ggml_tensor& out = p.out.t;
  out.op = GGML_OP_FLASH_ATTN_EXT;
  const float params[] = {1 / std::sqrt(static_cast<float>(c.dim)), c.max_bias, c.softcap};
  std::memcpy(out.op_params, params, sizeof params);
  return p;
}

inline void connect(Problem* p) {
  p->out.t.src[0] = &p->q.t;
  p->out.t.src[1] = &p->k.t;
  p->out.t.src[2] = &p->v.t;
  p->out.t.src[3] = p->mask ? &p->mask->t : nullptr;
  p->out.t.src[4] = p->sinks ? &p->sinks->t : nullptr;
}

/** ggml's definition in double precision; the largest difference of any result. */
inline double error(const Case& c, const Problem& p) {
  const double steps = std::pow(2, std::floor(std::log2(static_cast<double>(c.heads))));
  double worst = 0;
  const auto* got = reinterpret_cast<const float*>(p.out.bytes.data());
  for (int64_t b = 0; b < c.batches; b++) {
    for (int64_t h = 0; h < c.heads; h++) {
      const auto at = static_cast<double>(h);
      const double slope = c.max_bias <= 0 ? 1
                           : at < steps    ? std::pow(std::pow(2, -c.max_bias / steps), at + 1)
                                           : std::pow(std::pow(2, -c.max_bias / 2 / steps), 2 * (at - steps) + 1);
      const int64_t kv = h / (c.heads / c.kv_heads);
      for (int64_t i = 0; i < c.queries; i++) {
        std::vector<double> scores;
        double most = p.sinks ? p.sinks->values[static_cast<size_t>(h)] : -INFINITY;
        for (int64_t j = 0; j < c.keys; j++) {
          double s = 0;
          for (int64_t d = 0; d < c.dim; d++) s += p.q.at(d, i, h, b) * p.k.at(d, j, kv, b);
          s /= std::sqrt(static_cast<double>(c.dim));
          if (c.softcap > 0) s = c.softcap * std::tanh(s / c.softcap);
          if (p.mask) s += slope * p.mask->at(j, i, h % c.mask_heads, b % c.mask_batches);
          scores.push_back(s);
          most = std::max(most, s);
        }
        double sum = p.sinks ? std::exp(p.sinks->values[static_cast<size_t>(h)] - most) : 0;
        for (double& s : scores) sum += s = std::isinf(s) ? 0 : std::exp(s - most);
        for (int64_t d = 0; d < c.value_dim; d++) {
          double wanted = 0;
          for (int64_t j = 0; j < c.keys; j++) wanted += scores[static_cast<size_t>(j)] * p.v.at(d, j, kv, b);
          if (sum > 0) wanted /= sum;
          const double is = got[((b * c.queries + i) * c.heads + h) * c.value_dim + d];
          worst = std::isnan(is) ? INFINITY : std::max(worst, std::fabs(is - wanted));
        }
      }
    }
  }
  return worst;
}

inline void each_case(const std::function<void(const Case&)>& run) {
  const float hidden = -std::numeric_limits<float>::infinity();
  const auto after = [=](int64_t past, int64_t window = 1 << 20) {
    return [=](int64_t, int64_t, int64_t i, int64_t j) { return j <= i + past && j > i + past - window ? 0 : hidden; };
  };
  const auto noise = [](int64_t b, int64_t h, int64_t i, int64_t j) {
    return static_cast<float>((b * 7 + h * 5 + i * 3 + j) % 32) / 16;
  };
  const auto lengths = [=](int64_t b, int64_t, int64_t i, int64_t j) { return j <= i + 3 * b ? 0 : hidden; };
  Case c;
  const auto with = [&](const char* name, const std::function<void(Case&)>& change) {
    c = {};
    c.name = name;
    change(c);
    run(c);
  };
  for (int threads : {1, 2, 0}) {
    with("no mask", [&](Case& x) { x.threads = threads, x.counted = &counters.without_mask; });
    with("causal, cache of exactly its length",
         [&](Case& x) { x.mask = after(27), x.threads = threads, x.counted = &counters.by_shape; });
  }
  with("causal, chunk inside the cache", [&](Case& x) { x.mask = after(9), x.counted = &counters.by_shape; });
  with("window", [&](Case& x) { x.mask = after(9, 4), x.counted = &counters.by_shape; });
  with("window that begins at the start", [&](Case& x) { x.mask = after(0, 4), x.counted = &counters.by_shape; });
  with("one query", [&](Case& x) { x.queries = 1, x.mask = after(20), x.counted = &counters.by_shape; });
  with("one query, window", [&](Case& x) { x.queries = 1, x.mask = after(20, 6), x.counted = &counters.by_shape; });
  with("prefix of the keys", [&](Case& x) {
    x.mask = [=](int64_t, int64_t, int64_t, int64_t j) { return j < 20 ? 0 : hidden; };
    x.counted = &counters.by_shape;
  });
  with("some of the keys, from the middle", [&](Case& x) {
    x.mask = [=](int64_t, int64_t, int64_t, int64_t j) { return j > 8 && j < 20 ? 0 : hidden; };
    x.counted = &counters.with_bias;
  });
  with("nothing visible", [&](Case& x) { x.mask = [=](int64_t, int64_t, int64_t, int64_t) { return hidden; }; });
  with("nothing visible, sinks",
       [&](Case& x) { x.mask = [=](int64_t, int64_t, int64_t, int64_t) { return hidden; }, x.sinks = true; });
  with("a query that sees nothing", [&](Case& x) {
    x.mask = [=](int64_t, int64_t, int64_t i, int64_t j) { return i != 2 && j <= i + 9 ? 0 : hidden; };
    x.counted = &counters.with_bias;
  });
  with("biases under a diagonal", [&](Case& x) {
    x.mask = [=](int64_t b, int64_t h, int64_t i, int64_t j) { return j <= i + 9 ? noise(b, h, i, j) : hidden; };
    x.counted = &counters.with_bias;
  });
  with("a key that nobody sees under a diagonal", [&](Case& x) {
    x.mask = [=](int64_t, int64_t, int64_t i, int64_t j) { return j <= i + 9 && j != 4 ? 0 : hidden; };
    x.counted = &counters.with_bias;
  });
  with("two sequences in one cache", [&](Case& x) {
    x.mask = [=](int64_t, int64_t, int64_t i, int64_t j) { return j % 2 == i % 2 && j <= i + 9 ? 0 : hidden; };
    x.counted = &counters.with_bias;
  });
  with("streams of one shape",
       [&](Case& x) { x.batches = x.mask_batches = 3, x.mask = after(9), x.counted = &counters.by_shape; });
  with("streams of different lengths",
       [&](Case& x) { x.batches = x.mask_batches = 4, x.mask = lengths, x.counted = &counters.by_shape; });
  with("streams of different lengths, window", [&](Case& x) {
    x.batches = x.mask_batches = 4;
    x.mask = [=](int64_t b, int64_t, int64_t i, int64_t j) { return j <= i + 5 * b && j > i + 5 * b - 4 ? 0 : hidden; };
  });
  with("streams, one of which sees nothing", [&](Case& x) {
    x.batches = x.mask_batches = 3;
    x.mask = [=](int64_t b, int64_t, int64_t i, int64_t j) { return b != 1 && j <= i + 5 * b ? 0 : hidden; };
    x.counted = &counters.by_shape;
  });
  with("streams that share a mask", [&](Case& x) { x.batches = 4, x.mask = after(9), x.counted = &counters.by_shape; });
  with("streams that share biases", [&](Case& x) { x.batches = 4, x.mask = noise; });
  with("biases that repeat over streams", [&](Case& x) { x.batches = 4, x.mask_batches = 2, x.mask = noise; });
  with("biases of each head", [&](Case& x) { x.mask_heads = 4, x.mask = noise; });
  with("biases that repeat over heads", [&](Case& x) { x.mask_heads = 2, x.mask = noise, x.batches = 2; });
  with("shapes that repeat over heads", [&](Case& x) {
    x.mask_heads = 2;
    x.mask = [=](int64_t, int64_t h, int64_t i, int64_t j) { return j <= i + 3 * h ? 0 : hidden; };
  });
  for (int64_t heads : {4, 6, 12}) {
    with("ALiBi", [&](Case& x) { x.heads = heads, x.max_bias = 8, x.mask = noise; });
    with("ALiBi under a diagonal", [&](Case& x) {
      x.heads = heads, x.max_bias = 8, x.batches = 2, x.mask_batches = 2;
      x.mask = [=](int64_t b, int64_t, int64_t i, int64_t j) {
        return j <= i + 9 + b ? static_cast<float>(j - i - 9) / 16 : hidden;
      };
    });
  }
  with("soft cap", [&](Case& x) { x.softcap = 3, x.mask = after(9); });
  with("sinks", [&](Case& x) { x.sinks = true, x.mask = after(9), x.heads = 6; });
  with("sinks and ALiBi", [&](Case& x) { x.sinks = true, x.mask = noise, x.max_bias = 4; });
  with("heads in groups of 7", [&](Case& x) { x.heads = 7, x.kv_heads = 1, x.mask = after(9); });
  with("other dims", [&](Case& x) { x.dim = 40, x.value_dim = 72, x.mask = after(9); });
  with("f32 keys", [&](Case& x) { x.type = GGML_TYPE_F32, x.mask = after(9); });
  for (int64_t streams : {1, 3}) {
    with("a type that the engine doesn't know", [&](Case& x) {
      x.type = GGML_TYPE_Q5_0, x.dim = x.value_dim = 64, x.batches = x.mask_batches = streams, x.mask = lengths,
      x.kv_heads = 4;
    });
    with("the same with biases", [&](Case& x) {
      x.type = GGML_TYPE_Q5_0, x.dim = x.value_dim = 64, x.batches = streams, x.mask = noise, x.max_bias = 8;
    });
  }
  with("no keys", [&](Case& x) { x.keys = 0; });
  with("no queries", [&](Case& x) { x.queries = 0; });
}
