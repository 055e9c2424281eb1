// Attention in a plain loop, timed by the back end's own events, through the C contract alone: what the harness's figures
// are held against.
//
//   plain_loop LIBRARY DEVICE REPEATS CALLS B H HKV S D      causal prefill, f16; a sample is the mean of CALLS calls
//
// Prints {"kernel": ..., "samples": [milliseconds, ...]}. One set of inputs: for shapes that are larger than any cache.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/tessera.h"

namespace {

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::exit(1);
}

const tsr_backend* backend = nullptr;
tsr_context* context = nullptr;

void check(tsr_status status, const char* what) {
  if (status != TSR_OK) fail(std::string(what) + ": " + backend->last_error(context));
}

uint16_t half(float value) {
  // Of numbers that fp16 holds as normals, cut off: random input is as good this way.
  uint32_t bits = 0;
  static_assert(sizeof bits == sizeof value, "");
  __builtin_memcpy(&bits, &value, sizeof bits);
  const int exponent = static_cast<int>(bits >> 23 & 255) - 112;
  if (exponent <= 0) return 0;
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 1023));
}

struct Tensor {
  tsr_tensor view{};
  Tensor(int64_t batch, int64_t rows, int64_t heads, int64_t dim, uint32_t seed) {
    const int64_t count = batch * rows * heads * dim;
    tsr_buffer* buffer = nullptr;
    check(backend->buffer_create(context, static_cast<uint64_t>(count) * 2, &buffer), "buffer_create");
    view.struct_size = sizeof view;
    view.dtype = TSR_F16;
    view.data = backend->buffer_data(buffer);
    view.rank = 4;
    const int64_t shape[] = {batch, rows, heads, dim};
    int64_t stride = 1;
    for (int d = 3; d >= 0; d--) {
      view.shape[d] = shape[d];
      view.stride[d] = stride;
      stride *= shape[d];
    }
    std::vector<uint16_t> values(static_cast<size_t>(count));
    for (uint16_t& value : values) {
      float sum = -6;  // twelve uniform numbers make one that is nearly normal
      for (int i = 0; i < 12; i++) sum += static_cast<float>((seed = seed * 1664525u + 1013904223u) >> 8) * 0x1p-24f;
      value = half(sum);
    }
    check(backend->copy(context, nullptr, view.data, values.data(), values.size() * 2, TSR_COPY_HOST_TO_DEVICE),
          "copy");
    check(backend->stream_synchronize(context, nullptr), "stream_synchronize");
  }
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 10) fail("usage: plain_loop LIBRARY DEVICE REPEATS CALLS B H HKV S D");
  int64_t number[8];
  for (int i = 0; i < 8; i++) number[i] = std::atoll(arguments[i + 2]);
  const auto [device, repeats, calls, batch, heads, kv_heads, size, dim] =
      std::tuple{number[0], number[1], number[2], number[3], number[4], number[5], number[6], number[7]};
  void* library = dlopen(arguments[1], RTLD_NOW);
  if (!library) fail(dlerror());
  const auto entry = reinterpret_cast<tsr_backend_entry_fn>(dlsym(library, "tsr_backend_entry"));
  backend = entry ? entry(TSR_ABI_VERSION) : nullptr;
  if (!backend) fail("no back end of this version");
  tsr_context_desc open{};
  open.struct_size = sizeof open;
  open.device = static_cast<int32_t>(device);
  check(backend->context_create(&open, &context), "context_create");

  const Tensor q(batch, size, heads, dim, 1), k(batch, size, kv_heads, dim, 2), v(batch, size, kv_heads, dim, 3);
  const Tensor out(batch, size, heads, dim, 4);
  tsr_attention_desc desc{};
  desc.struct_size = sizeof desc;
  desc.q = &q.view;
  desc.k = &k.view;
  desc.v = &v.view;
  desc.out = &out.view;
  desc.causal = 1;
  uint64_t bytes = 0;
  check(backend->attention_workspace(context, &desc, &bytes), "attention_workspace");
  if (bytes > 0) {
    tsr_buffer* workspace = nullptr;
    check(backend->buffer_create(context, bytes, &workspace), "buffer_create");
    desc.workspace = backend->buffer_data(workspace);
    desc.workspace_bytes = bytes;
  }
  tsr_explanation explanation{};
  explanation.struct_size = sizeof explanation;
  check(backend->explain(context, &desc, &explanation), "explain");

  const auto run = [&] {
    for (int64_t i = 0; i < calls; i++) check(backend->attention(context, nullptr, &desc), "attention");
  };
  for (int i = 0; i < 15; i++) run();  // the harness warms up for as long
  std::vector<tsr_event*> marks(static_cast<size_t>(repeats) + 1);
  for (tsr_event*& mark : marks) check(backend->event_create(context, &mark), "event_create");
  check(backend->event_record(context, marks[0], nullptr), "event_record");
  for (size_t i = 1; i < marks.size(); i++) {
    run();
    check(backend->event_record(context, marks[i], nullptr), "event_record");
  }
  check(backend->stream_synchronize(context, nullptr), "stream_synchronize");
  std::printf("{\"kernel\": \"%s\", \"samples\": [", explanation.kernel);
  for (size_t i = 1; i < marks.size(); i++) {
    double ms = 0;
    check(backend->event_elapsed(context, marks[i - 1], marks[i], &ms), "event_elapsed");
    std::printf("%s%.6f", i > 1 ? ", " : "", ms / static_cast<double>(calls));
  }
  std::printf("]}\n");
  return 0;
}
