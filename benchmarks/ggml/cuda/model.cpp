// A model on the GPU, end to end by llama.cpp's own interface: what llama-bench measures.
//
//   model GGUF JOB...      JOB: prefill:TOKENS:UBATCH:CACHE or decode:DEPTH:TOKENS:CACHE
//
// One line of JSON for each job: {"job", "tokens_per_second", "ms"}, of the best of three prompts, or of all TOKENS after DEPTH;
// the last logits follow it in a file of the job's name with - for : in the working directory.
#include "llama.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "model: %s\n", text.c_str());
  std::exit(1);
}

enum ggml_type type_of(const std::string& name) {
  if (name == "f16") return GGML_TYPE_F16;
  if (name == "q8_0") return GGML_TYPE_Q8_0;
  if (name == "q4_0") return GGML_TYPE_Q4_0;
  fail("CACHE is f16, q8_0 or q4_0");
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == ':') {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  return parts;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int vocabulary = 0;
/** Any token follows any other: weights are random. */
llama_token token_at(int i) { return static_cast<llama_token>((i * 7919LL + 13) % vocabulary); }

void feed(llama_context* context, int from, int to) {
  const int batch = static_cast<int>(llama_n_batch(context));
  for (int i = from; i < to; i += batch) {
    std::vector<llama_token> tokens;
    for (int j = i; j < std::min(to, i + batch); j++) tokens.push_back(token_at(j));
    if (llama_decode(context, llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()))) != 0)
      fail("llama_decode failed");
  }
  llama_synchronize(context);
}

void job(llama_model* model, const std::string& name) {
  const std::vector<std::string> parts = split(name);
  if (parts.size() != 4) fail("see the head of its source");
  const bool prefill = parts[0] == "prefill";
  const int length = std::atoi(parts[1].c_str()), second = std::atoi(parts[2].c_str());
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(length + (prefill ? 0 : second + 64));
  params.n_ubatch = static_cast<uint32_t>(prefill ? second : 2048);
  params.n_batch = std::max<uint32_t>(params.n_ubatch, 2048);
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_AUTO;
  params.type_k = params.type_v = type_of(parts[3]);
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) fail("no context for " + name);
  double best = 0;
  int tokens = length;
  if (prefill) {
    for (int round = 0; round < 4; round++) {
      llama_memory_clear(llama_get_memory(context), false);
      const double start = now();
      feed(context, 0, length);
      const double took = now() - start;
      if (round > 0 && (best == 0 || took < best)) best = took;
    }
  } else {
    feed(context, 0, length);
    for (int i = 0; i < 16; i++) feed(context, length + i, length + i + 1);
    const double start = now();
    for (int i = 16; i < 16 + second; i++) feed(context, length + i, length + i + 1);
    best = now() - start;
    tokens = second;
  }
  std::printf("{\"job\": \"%s\", \"tokens_per_second\": %.1f, \"ms\": %.4f}\n", name.c_str(), tokens / best,
              1000 * best / (prefill ? 1 : tokens));
  std::fflush(stdout);
  std::string file_name = name;
  std::replace(file_name.begin(), file_name.end(), ':', '-');
  std::FILE* file = std::fopen(file_name.c_str(), "wb");
  if (file == nullptr) fail("can't write " + file_name);
  std::fwrite(llama_get_logits_ith(context, -1), sizeof(float), static_cast<size_t>(vocabulary), file);
  std::fclose(file);
  llama_free(context);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) fail("see the head of its source");
  llama_log_set(
      [](enum ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_WARN) std::fputs(text, stderr);
      },
      nullptr);
  ggml_backend_load_all();
  llama_backend_init();
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 999;
  llama_model* model = llama_model_load_from_file(arguments[1], params);
  if (model == nullptr) fail("no model");
  vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  for (int i = 2; i < count; i++) job(model, arguments[i]);
  llama_model_free(model);
  return 0;
}
