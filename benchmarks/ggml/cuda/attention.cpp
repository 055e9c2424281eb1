// FLASH_ATTN_EXT alone on ggml's device CUDA0, as a layer of a model calls it: some nodes in one graph, each with keys and values
// of its own, and one causal mask for all. run.py runs it with the plug-in (GGML_BACKEND_PATH) and without.
//
//   attention TYPE QUERIES KEYS NODES ROUNDS OUT
//
// 32 query and 8 KV heads of 128; the queries are the last ones of KEYS. Prints {"us": [for each round, one node]} and writes the
// first node's result, f32, to OUT.
#include "ggml-backend.h"
#include "ggml.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int64_t kHeads = 32, kKvHeads = 8, kDim = 128;

[[noreturn]] void fail(const char* text) {
  std::fprintf(stderr, "attention: %s\n", text);
  std::exit(1);
}

/** Rows of normal numbers in the tensor's type, a few thousand of them again and again: some tensors have gigabytes. */
void fill(ggml_tensor* tensor, unsigned seed) {
  constexpr int64_t rows = 4099;  // prime: heads and tokens meet different rows
  static std::vector<float> numbers;
  if (numbers.empty()) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < 2 * rows * kDim; i++) numbers.push_back(normal(random));
  }
  const float* from = numbers.data() + (seed % static_cast<unsigned>(rows)) * kDim;
  const size_t row = ggml_row_size(tensor->type, kDim);
  std::vector<char> block(row * rows);
  if (tensor->type == GGML_TYPE_F32) {
    std::memcpy(block.data(), from, block.size());
  } else if (tensor->type == GGML_TYPE_F16) {
    ggml_fp32_to_fp16_row(from, reinterpret_cast<ggml_fp16_t*>(block.data()), rows * kDim);
  } else {
    ggml_quantize_chunk(tensor->type, from, block.data(), 0, rows, kDim, nullptr);
  }
  const size_t all = ggml_nbytes(tensor);
  for (size_t at = 0; at < all; at += block.size()) {
    ggml_backend_tensor_set(tensor, block.data(), at, std::min(block.size(), all - at));
  }
}

void fill_mask(ggml_tensor* mask, int64_t queries, int64_t keys) {
  const ggml_fp16_t hidden = ggml_fp32_to_fp16(-INFINITY);
  std::vector<ggml_fp16_t> row(static_cast<size_t>(keys));
  for (int64_t i = 0; i < queries; i++) {
    for (int64_t j = 0; j < keys; j++) row[static_cast<size_t>(j)] = j <= i + keys - queries ? 0 : hidden;
    ggml_backend_tensor_set(mask, row.data(), static_cast<size_t>(i) * mask->nb[1], row.size() * 2);
  }
}

enum ggml_type type_of(const std::string& name) {
  if (name == "f16") return GGML_TYPE_F16;
  if (name == "q8_0") return GGML_TYPE_Q8_0;
  if (name == "q4_0") return GGML_TYPE_Q4_0;
  fail("TYPE is f16, q8_0 or q4_0");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 7) fail("see the head of its source");
  const enum ggml_type type = type_of(arguments[1]);
  const int64_t queries = std::atoll(arguments[2]), keys = std::atoll(arguments[3]);
  const int nodes = std::atoi(arguments[4]), rounds = std::atoi(arguments[5]);
  ggml_backend_load_all();
  ggml_backend_dev_t device = ggml_backend_dev_by_name("CUDA0");
  if (device == nullptr) fail("no device CUDA0");
  ggml_backend_t backend = ggml_backend_dev_init(device, nullptr);
  if (backend == nullptr) fail("CUDA0 can't be used");

  ggml_context* context = ggml_init({64 << 20, nullptr, true});
  ggml_tensor* mask = ggml_new_tensor_2d(context, GGML_TYPE_F16, keys, queries);
  ggml_cgraph* graph = ggml_new_graph_custom(context, 4096, false);
  std::vector<ggml_tensor*> inputs;
  ggml_tensor* first = nullptr;
  for (int i = 0; i < nodes; i++) {
    ggml_tensor* q = ggml_new_tensor_3d(context, GGML_TYPE_F32, kDim, kHeads, queries);
    ggml_tensor* k = ggml_new_tensor_3d(context, type, kDim, kKvHeads, keys);
    ggml_tensor* v = ggml_new_tensor_3d(context, type, kDim, kKvHeads, keys);
    for (ggml_tensor* tensor : {q, k, v}) inputs.push_back(tensor);
    ggml_tensor* out =
        ggml_flash_attn_ext(context, ggml_permute(context, q, 0, 2, 1, 3), ggml_permute(context, k, 0, 2, 1, 3),
                            ggml_permute(context, v, 0, 2, 1, 3), mask, 1 / std::sqrt(static_cast<float>(kDim)), 0, 0);
    ggml_build_forward_expand(graph, out);
    if (first == nullptr) first = out;
  }
  if (ggml_backend_alloc_ctx_tensors(context, backend) == nullptr) fail("out of memory");
  for (size_t i = 0; i < inputs.size(); i++) fill(inputs[i], static_cast<unsigned>(i) * 37);
  fill_mask(mask, queries, keys);

  std::string times;
  for (int round = -3; round < rounds; round++) {
    const auto start = std::chrono::steady_clock::now();
    if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) fail("graph_compute failed");  // and waits
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (round >= 0) times += (times.empty() ? "" : ", ") + std::to_string(took.count() / nodes);
  }
  std::vector<char> result(ggml_nbytes(first));
  ggml_backend_tensor_get(first, result.data(), 0, result.size());
  std::FILE* file = std::fopen(arguments[6], "wb");
  if (file == nullptr || std::fwrite(result.data(), 1, result.size(), file) != result.size()) fail("can't write OUT");
  std::fclose(file);
  std::printf("{\"us\": [%s]}\n", times.c_str());
  ggml_backend_free(backend);
  return 0;
}
