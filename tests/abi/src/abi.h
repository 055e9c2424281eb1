/* What the programs here share: opening a back end, describing tensors, a naive attention to compare with. */
#ifndef TESSERA_TESTS_ABI_H
#define TESSERA_TESTS_ABI_H

#include <dlfcn.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"
#include "device.h"
#include "tessera/tessera.h"

/* The table of the library whose path is argv[1]; ends the program if there is none. */
static inline const tsr_backend* load_backend(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s BACKEND.so\n", argv[0]);
    exit(2);
  }
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  tsr_backend_entry_fn entry;
  *(void**)&entry = dlsym(library, "tsr_backend_entry");
  const tsr_backend* backend = entry ? entry(TSR_ABI_VERSION) : NULL;
  if (backend == NULL) {
    fprintf(stderr, "%s: no back end of ABI version %u\n", argv[1], TSR_ABI_VERSION);
    exit(2);
  }
  CHECK(entry(999) == NULL, "an unknown ABI version has to be refused");
  CHECK(entry(0) == NULL, "an unknown ABI version has to be refused");
  return backend;
}

/* Whether the device computes in the caller's memory, as a CPU does. It reads lengths and pages then, and checks them. */
static int host_memory = 1;

/* The back end, made so that it takes tensors in host memory. Skips the program where there is no device for it; a CPU is
 * always there. */
static inline const tsr_backend* open_backend(int argc, char** argv) {
  const tsr_backend* backend = load_backend(argc, argv);
  tsr_probe_result probe = {.struct_size = sizeof probe};
  tsr_device_info device = {.struct_size = sizeof device};
  backend->probe(&probe);
  if (strcmp(backend->name, "cpu") != 0 && probe.state != TSR_PROBE_USABLE) {
    printf("no device for %s: %s\n", backend->name, probe.reason);
    exit(77);
  }
  if (backend->device_info(0, &device) == TSR_OK) host_memory = (device.caps & TSR_DEVICE_HOST_MEMORY) != 0;
  return host_memory ? backend : through_host(backend);
}

/* A usable kernel of the family that takes f32, for head dims of 8 and 16 and the like. */
static inline const char* f32_kernel(const tsr_backend* backend, tsr_context* context, tsr_kernel_family family) {
  static tsr_kernel_info infos[2];
  for (int32_t i = backend->kernel_count(context) - 1; i >= 0; --i) {
    tsr_kernel_info info = {.struct_size = sizeof info};
    if (backend->kernel_info(context, i, &info) != TSR_OK || info.family != family || !info.usable) continue;
    if (!(info.q_dtypes & info.kv_dtypes & 1u << TSR_F32)) continue;
    infos[family == TSR_FAMILY_DECODE] = info;
    return infos[family == TSR_FAMILY_DECODE].name;
  }
  return "none";
}

static inline tsr_context* open_context(const tsr_backend* backend, int threads) {
  tsr_context_desc desc = {.struct_size = sizeof desc, .threads = threads};
  tsr_context* context = NULL;
  if (backend->context_create(&desc, &context) != TSR_OK) {
    fprintf(stderr, "context_create: %s\n", backend->last_error(NULL));
    exit(1);
  }
  return context;
}

/* A contiguous tensor; trailing extents of -1 are not there. */
static inline tsr_tensor tensor(tsr_dtype dtype, void* data, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t shape[4] = {a, b, c, d};
  tsr_tensor t = {.struct_size = sizeof t, .dtype = dtype, .data = data};
  while (t.rank < 4 && shape[t.rank] >= 0) ++t.rank;
  int64_t stride = 1;
  for (int i = t.rank - 1; i >= 0; --i) {
    t.shape[i] = shape[i];
    t.stride[i] = stride;
    stride *= shape[i];
  }
  return t;
}

/* The same numbers in every run. */
static inline float noise(uint32_t* seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return (float)(int32_t)(*seed >> 8) / 8388608.0f - 1.0f;
}
static inline float* noise_array(int64_t count, uint32_t seed) {
  float* values = malloc((size_t)(count ? count : 1) * sizeof *values);
  for (int64_t i = 0; i < count; ++i) values[i] = noise(&seed);
  return values;
}

/* f32, padded, contiguous: q [B,Sq,Hq,D], k and v [B,Sk,Hkv,D], bottom-right causal if asked. */
typedef struct {
  int64_t b, sq, sk, hq, hkv, d;
  int causal;
} problem;

static inline void naive(problem p, const float* q, const float* k, const float* v, float* out, float* lse) {
  double* s = malloc((size_t)(p.sk ? p.sk : 1) * sizeof *s);
  for (int64_t b = 0; b < p.b; ++b)
    for (int64_t h = 0; h < p.hq; ++h)
      for (int64_t i = 0; i < p.sq; ++i) {
        const int64_t kv = h / (p.hq / p.hkv);
        const float* qi = q + ((b * p.sq + i) * p.hq + h) * p.d;
        float* oi = out + ((b * p.sq + i) * p.hq + h) * p.d;
        double most = -INFINITY, sum = 0;
        for (int64_t j = 0; j < p.sk; ++j) {
          const float* kj = k + ((b * p.sk + j) * p.hkv + kv) * p.d;
          s[j] = 0;
          for (int64_t d = 0; d < p.d; ++d) s[j] += (double)qi[d] * kj[d];
          s[j] /= sqrt((double)p.d);
          if (p.causal && j > i + p.sk - p.sq) s[j] = -INFINITY;
          if (s[j] > most) most = s[j];
        }
        for (int64_t j = 0; j < p.sk && most > -INFINITY; ++j) sum += exp(s[j] - most);
        for (int64_t d = 0; d < p.d; ++d) {
          double o = 0;
          for (int64_t j = 0; j < p.sk && sum > 0; ++j)
            o += exp(s[j] - most) / sum * v[((b * p.sk + j) * p.hkv + kv) * p.d + d];
          oi[d] = (float)o;
        }
        if (lse) lse[(b * p.hq + h) * p.sq + i] = sum > 0 ? (float)(most + log(sum)) : -INFINITY;
      }
  free(s);
}

static inline double max_error(const float* a, const float* b, int64_t count) {
  double most = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (a[i] == b[i]) continue;
    const double error = fabs((double)a[i] - b[i]);
    if (!(error <= most)) most = error;
  }
  return most;
}

/* A problem with its memory and its descriptor. Don't move it: the descriptor points into it. */
typedef struct {
  problem p;
  int64_t q_count, kv_count, lse_count;
  float *q, *k, *v, *out, *lse;
  tsr_tensor tq, tk, tv, tout, tlse;
  tsr_attention_desc desc;
} job;

static inline void job_init(job* j, problem p, uint32_t seed) {
  memset(j, 0, sizeof *j);
  j->p = p;
  j->q_count = p.b * p.sq * p.hq * p.d;
  j->kv_count = p.b * p.sk * p.hkv * p.d;
  j->lse_count = p.b * p.hq * p.sq;
  j->q = noise_array(j->q_count, seed);
  j->k = noise_array(j->kv_count, seed + 1);
  j->v = noise_array(j->kv_count, seed + 2);
  j->out = noise_array(j->q_count, seed + 3);
  j->lse = noise_array(j->lse_count, seed + 4);
  j->tq = tensor(TSR_F32, j->q, p.b, p.sq, p.hq, p.d);
  j->tk = tensor(TSR_F32, j->k, p.b, p.sk, p.hkv, p.d);
  j->tv = tensor(TSR_F32, j->v, p.b, p.sk, p.hkv, p.d);
  j->tout = tensor(TSR_F32, j->out, p.b, p.sq, p.hq, p.d);
  j->tlse = tensor(TSR_F32, j->lse, p.b, p.hq, p.sq, -1);
  j->desc = (tsr_attention_desc){.struct_size = sizeof j->desc, .q = &j->tq, .k = &j->tk, .v = &j->tv};
  j->desc.out = &j->tout;
  j->desc.lse = &j->tlse;
  j->desc.causal = p.causal;
}

static inline void job_free(job* j) { free(j->q), free(j->k), free(j->v), free(j->out), free(j->lse); }

/* Asks for the workspace, fills it with garbage, runs. */
static inline tsr_status run_attention(const tsr_backend* backend, tsr_context* context, tsr_attention_desc desc) {
  uint64_t bytes = 0;
  tsr_status status = backend->attention_workspace(context, &desc, &bytes);
  if (status != TSR_OK) return status;
  void* workspace = aligned_alloc(64, (size_t)(bytes + 64) / 64 * 64);
  memset(workspace, 0xff, (size_t)bytes); /* NaN, whatever type it is read as */
  desc.workspace = workspace;
  desc.workspace_bytes = bytes;
  status = backend->attention(context, NULL, &desc);
  free(workspace);
  return status;
}

#endif
