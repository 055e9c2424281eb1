/*
 * Fused attention from C, with no Node in sight: open a back end, make a context, run causal attention with grouped heads,
 * compare with two loops. Works for every back end: on a device with memory of its own tensors go there and back.
 *
 *     cc -std=c11 -I packages/core/include examples/c/attention.c -o attention -ldl -lm
 *     ./attention backends/cpu/lib/libtessera-cpu.so
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tessera/tessera.h"

enum {
  B = 2,
  S = 96,
  HQ = 8,
  HKV = 2,
  D = 64
};

static const tsr_backend* backend;
static tsr_context* context;

/* Every call answers with a status; the text of what went wrong is the context's. */
static void check(tsr_status status, const char* what) {
  if (status == TSR_OK) return;
  fprintf(stderr, "%s: %s\n", what, backend->last_error(context));
  exit(1);
}

static const tsr_backend* open_backend(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed: its threads and its device outlive any caller */
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  tsr_backend_entry_fn entry = (tsr_backend_entry_fn)dlsym(library, "tsr_backend_entry");
  const tsr_backend* table = entry ? entry(TSR_ABI_VERSION) : NULL;
  if (!table) {
    fprintf(stderr, "%s is no back end that speaks version %u of the contract\n", path, TSR_ABI_VERSION);
    exit(1);
  }
  return table;
}

/* Memory of the device, with what is in `data` if that is given. */
static tsr_buffer* device_memory(const void* data, uint64_t bytes) {
  tsr_buffer* buffer;
  check(backend->buffer_create(context, bytes, &buffer), "buffer_create");
  if (data)
    check(backend->copy(context, NULL, backend->buffer_data(buffer), data, bytes, TSR_COPY_HOST_TO_DEVICE), "copy");
  return buffer;
}

/* A dense f32 tensor [B, S, heads, D]. Everything that isn't named is 0, and 0 is the default. */
static tsr_tensor tensor(tsr_buffer* buffer, int64_t heads) {
  return (tsr_tensor){.struct_size = sizeof(tsr_tensor),
                      .dtype = TSR_F32,
                      .data = backend->buffer_data(buffer),
                      .rank = 4,
                      .shape = {B, S, heads, D},
                      .stride = {S * heads * D, heads * D, D, 1}};
}

static float* noise(size_t count, unsigned seed) {
  float* values = malloc(count * sizeof *values);
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
  return values;
}

/* The definition, in double: softmax(q k^T / sqrt(D)) v over the keys up to the query's own position. */
static double largest_error(const float* q, const float* k, const float* v, const float* out) {
  double error = 0, weight[S];
  for (int b = 0; b < B; ++b)
    for (int h = 0; h < HQ; ++h)
      for (int i = 0; i < S; ++i) {
        const int kv = h / (HQ / HKV);
        const float* query = q + ((b * S + i) * HQ + h) * D;
        double sum = 0;
        for (int j = 0; j <= i; ++j) {
          double score = 0;
          for (int d = 0; d < D; ++d) score += (double)query[d] * k[((b * S + j) * HKV + kv) * D + d];
          sum += weight[j] = exp(score / sqrt(D));
        }
        for (int d = 0; d < D; ++d) {
          double value = 0;
          for (int j = 0; j <= i; ++j) value += weight[j] / sum * v[((b * S + j) * HKV + kv) * D + d];
          error = fmax(error, fabs(value - out[((b * S + i) * HQ + h) * D + d]));
        }
      }
  return error;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s LIBRARY\n", argv[0]);
    return 2;
  }
  backend = open_backend(argv[1]);

  tsr_probe_result probe = {.struct_size = sizeof probe};
  check(backend->probe(&probe), "probe");
  if (probe.state != TSR_PROBE_USABLE) {
    fprintf(stderr, "%s can't be used: %s\nWhat to do: %s\n", backend->name, probe.reason, probe.fix);
    return 1;
  }
  tsr_device_info device = {.struct_size = sizeof device};
  check(backend->device_info(0, &device), "device_info");
  const tsr_context_desc options = {.struct_size = sizeof options};
  check(backend->context_create(&options, &context), "context_create");
  printf("%s %s: %s (%s)\n", backend->name, backend->version, device.name, device.arch);

  const size_t q_count = (size_t)B * S * HQ * D, kv_count = (size_t)B * S * HKV * D;
  float *q = noise(q_count, 1), *k = noise(kv_count, 2), *v = noise(kv_count, 3);
  float* out = malloc(q_count * sizeof *out);
  tsr_buffer* q_memory = device_memory(q, q_count * sizeof *q);
  tsr_buffer* k_memory = device_memory(k, kv_count * sizeof *k);
  tsr_buffer* v_memory = device_memory(v, kv_count * sizeof *v);
  tsr_buffer* out_memory = device_memory(NULL, q_count * sizeof *out);

  const tsr_tensor q_tensor = tensor(q_memory, HQ), k_tensor = tensor(k_memory, HKV), v_tensor = tensor(v_memory, HKV);
  const tsr_tensor out_tensor = tensor(out_memory, HQ);
  tsr_attention_desc desc = {
      .struct_size = sizeof desc, .q = &q_tensor, .k = &k_tensor, .v = &v_tensor, .out = &out_tensor, .causal = 1};

  /* Which kernel that will be, and how much scratch memory it wants; the same for every step of these shapes. */
  tsr_explanation explanation = {.struct_size = sizeof explanation};
  check(backend->explain(context, &desc, &explanation), "explain");
  printf("kernel %s\n", explanation.kernel);
  check(backend->attention_workspace(context, &desc, &desc.workspace_bytes), "attention_workspace");
  tsr_buffer* workspace = NULL;
  if (desc.workspace_bytes > 0) {
    workspace = device_memory(NULL, desc.workspace_bytes);
    desc.workspace = backend->buffer_data(workspace);
  }

  /* NULL: the context's own stream. On a GPU these three return at once; synchronize waits. */
  check(backend->attention(context, NULL, &desc), "attention");
  check(backend->copy(context, NULL, out, backend->buffer_data(out_memory), q_count * sizeof *out,
                      TSR_COPY_DEVICE_TO_HOST),
        "copy");
  check(backend->stream_synchronize(context, NULL), "stream_synchronize");

  const double error = largest_error(q, k, v, out);
  printf("largest error against float64: %.1e\n", error);

  if (workspace) backend->buffer_destroy(workspace);
  backend->buffer_destroy(q_memory);
  backend->buffer_destroy(k_memory);
  backend->buffer_destroy(v_memory);
  backend->buffer_destroy(out_memory);
  backend->context_destroy(context);
  free(q), free(k), free(v), free(out);
  return error < 1e-5 ? 0 : 1;
}
