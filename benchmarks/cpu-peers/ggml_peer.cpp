// One ggml flash_attn_ext call, timed on request: a contestant of run.mjs. Loads the CPU libraries that
// node-llama-cpp ships, the best of them for this processor, as llama.cpp itself does. The few declarations of ggml's
// interface that it needs are its own.
//
//   ggml_peer LIBRARIES TYPE ORDER SQ SK HEADS KV_HEADS DIM CAUSAL THREADS COPIES FOLDER
//
// Reads FOLDER/q.bin (f32, [SQ, HEADS, DIM]), k.bin and v.bin (TYPE, [SK, KV_HEADS, DIM]), writes FOLDER/out.bin
// ([SQ, HEADS, DIM]) and a line that says what it is; then, for every line with two numbers, runs so many times untimed and so
// many timed, and answers with the milliseconds. COPIES of K and V take turns, so that a cache can be larger than the processor's. ORDER says how ggml has
// them in memory: "tokens" as in the files (llama.cpp's cache), or "heads", each head's rows together.
// GGML_PEER_PLUGIN names a back end to compute with in place of ggml's own for CPUs.
#include <dlfcn.h>
#include <glob.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct InitParams {
  size_t size;
  void* buffer;
  bool no_alloc;
};
struct ThreadpoolParams {
  bool cpumask[512];
  int threads;
  int priority;
  uint32_t poll;
  bool strict;
  bool paused;
};
using Context = struct ggml_context;
using Tensor = struct ggml_tensor;
using Graph = struct ggml_cgraph;

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "ggml_peer: %s\n", text.c_str());
  std::exit(1);
}

template <class F>
F* symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) fail(std::string(name) + " is missing");
  return reinterpret_cast<F*>(found);
}

void* open_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) fail(dlerror());
  return library;
}

void read_file(const std::string& path, void* to, size_t bytes) {
  FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr || std::fread(to, 1, bytes, file) != bytes) fail(path + " is too short");
  std::fclose(file);
}

void* cpu_backend(void* base, void* cpu, int threads) {
  void* backend = symbol<void*()>(cpu, "ggml_backend_cpu_init")();
  ThreadpoolParams params;
  std::memset(&params, 0, sizeof params);
  symbol<void(ThreadpoolParams*, int)>(base, "ggml_threadpool_params_init")(&params, threads);
  void* pool = symbol<void*(ThreadpoolParams*)>(cpu, "ggml_threadpool_new")(&params);
  symbol<void(void*, int)>(cpu, "ggml_backend_cpu_set_n_threads")(backend, threads);
  symbol<void(void*, void*)>(cpu, "ggml_backend_cpu_set_threadpool")(backend, pool);
  return backend;
}

/** The first device of a back end from elsewhere. */
void* plugin_backend(const std::string& libraries, void* base, const char* path, int threads) {
  glob_t found;
  if (glob((libraries + "/libggml.*.so").c_str(), 0, nullptr, &found) != 0) fail("no libggml.*.so");
  void* registry = open_library(found.gl_pathv[0]);
  void* reg = symbol<void*(const char*)>(registry, "ggml_backend_load")(path);
  if (reg == nullptr) fail(std::string(path) + " can't be loaded");
  void* device = symbol<void*(void*, size_t)>(base, "ggml_backend_reg_dev_get")(reg, 0);
  void* backend = symbol<void*(void*, const char*)>(base, "ggml_backend_dev_init")(device, nullptr);
  void* set =
      symbol<void*(void*, const char*)>(base, "ggml_backend_reg_get_proc_address")(reg, "ggml_backend_set_n_threads");
  if (set != nullptr) reinterpret_cast<void (*)(void*, int)>(set)(backend, threads);
  return backend;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 13) fail("see the head of its source");
  const std::string libraries = arguments[1], type_name = arguments[2], folder = arguments[12];
  const bool by_heads = std::string(arguments[3]) == "heads";
  const auto number = [&](int i) { return std::strtoll(arguments[i], nullptr, 10); };
  const int64_t sq = number(4), sk = number(5), heads = number(6), kv_heads = number(7), dim = number(8);
  const bool causal = number(9) != 0;
  const int threads = static_cast<int>(number(10));
  const int copies = static_cast<int>(number(11));
  const int f32 = 0, f16 = 1;
  const int type = type_name == "f32"    ? f32
                   : type_name == "f16"  ? f16
                   : type_name == "q4_0" ? 2
                   : type_name == "q8_0" ? 8
                   : type_name == "bf16" ? 30
                                         : -1;
  if (type < 0) fail("no type " + type_name);

  void* base = open_library(libraries + "/libggml-base.so");
  glob_t found;
  if (glob((libraries + "/libggml-cpu-*.so").c_str(), 0, nullptr, &found) != 0) fail("no libggml-cpu-*.so");
  std::string best;
  int best_score = 0;
  for (size_t i = 0; i < found.gl_pathc; i++) {
    void* library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    const int score = symbol<int()>(library, "ggml_backend_score")();
    if (score > best_score) {
      best_score = score;
      best = found.gl_pathv[i];
    }
    dlclose(library);
  }
  if (best.empty()) fail("no library runs on this processor");
  void* cpu = open_library(best);

  const auto new_tensor =
      symbol<Tensor*(Context*, int, int64_t, int64_t, int64_t, int64_t)>(base, "ggml_new_tensor_4d");
  const auto permute = symbol<Tensor*(Context*, Tensor*, int, int, int, int)>(base, "ggml_permute");
  const auto data = symbol<void*(const Tensor*)>(base, "ggml_get_data");
  const auto bytes = symbol<size_t(const Tensor*)>(base, "ggml_nbytes");
  const auto to_f16 = symbol<uint16_t(float)>(base, "ggml_fp32_to_fp16");
  Context* context = symbol<Context*(InitParams)>(
      base, "ggml_init")({static_cast<size_t>(copies) * 2 * static_cast<size_t>(sk * kv_heads * dim * 4) +
                              static_cast<size_t>(sq * heads * dim * 4) * static_cast<size_t>(copies + 1) +
                              static_cast<size_t>(sq * sk * 2) + (64u << 20),
                          nullptr, false});
  const char* plugin = std::getenv("GGML_PEER_PLUGIN");
  void* backend =
      plugin != nullptr ? plugin_backend(libraries, base, plugin, threads) : cpu_backend(base, cpu, threads);

  Tensor* q = new_tensor(context, f32, dim, heads, sq, 1);
  read_file(folder + "/q.bin", data(q), bytes(q));
  Tensor* mask = nullptr;
  if (causal) {
    mask = new_tensor(context, f16, sk, sq, 1, 1);
    auto* at = static_cast<uint16_t*>(data(mask));
    const uint16_t hidden = to_f16(-__builtin_inff());
    for (int64_t i = 0; i < sq; i++) {
      for (int64_t j = 0; j < sk; j++) *at++ = j <= i + sk - sq ? 0 : hidden;
    }
  }
  std::vector<Graph*> graphs;
  Tensor* out = nullptr;
  for (int i = 0; i < copies; i++) {
    const auto cache = [&](const char* name) {
      Tensor* tensor =
          by_heads ? new_tensor(context, type, dim, sk, kv_heads, 1) : new_tensor(context, type, dim, kv_heads, sk, 1);
      auto* to = static_cast<char*>(data(tensor));
      if (!by_heads) {
        read_file(folder + name, to, bytes(tensor));
        return permute(context, tensor, 0, 2, 1, 3);
      }
      std::vector<char> tokens(bytes(tensor));
      read_file(folder + name, tokens.data(), tokens.size());
      const size_t row = tokens.size() / static_cast<size_t>(sk * kv_heads);
      for (int64_t h = 0; h < kv_heads; h++) {
        for (int64_t j = 0; j < sk; j++) {
          std::memcpy(to + static_cast<size_t>(h * sk + j) * row,
                      tokens.data() + static_cast<size_t>(j * kv_heads + h) * row, row);
        }
      }
      return tensor;
    };
    Tensor* k = cache("/k.bin");
    Tensor* v = cache("/v.bin");
    Tensor* result =
        symbol<Tensor*(Context*, Tensor*, Tensor*, Tensor*, Tensor*, float, float, float)>(base, "ggml_flash_attn_ext")(
            context, permute(context, q, 0, 2, 1, 3), k, v, mask, 1 / __builtin_sqrtf(static_cast<float>(dim)), 0, 0);
    Graph* graph = symbol<Graph*(Context*)>(base, "ggml_new_graph")(context);
    symbol<void(Graph*, Tensor*)>(base, "ggml_build_forward_expand")(graph, result);
    graphs.push_back(graph);
    if (i == 0) out = result;
  }
  const auto compute = symbol<int(void*, Graph*)>(base, "ggml_backend_graph_compute");
  if (compute(backend, graphs[0]) != 0) fail("ggml_backend_graph_compute failed");
  FILE* file = std::fopen((folder + "/out.bin").c_str(), "wb");
  if (file == nullptr) fail("can't write out.bin");
  std::fwrite(data(out), 1, bytes(out), file);
  std::fclose(file);
  std::printf("ggml flash_attn_ext %s, %s (%s)\n", type_name.c_str(), arguments[3], best.c_str() + best.rfind('/') + 1);
  std::fflush(stdout);

  int before = 0, timed = 0;
  size_t turn = 0;
  while (std::scanf("%d %d", &before, &timed) == 2) {
    for (int i = -before; i < timed; i++) {
      const auto start = std::chrono::steady_clock::now();
      compute(backend, graphs[++turn % graphs.size()]);
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
      if (i >= 0) std::printf("%s%.6f", i > 0 ? " " : "", took.count());
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}
