/* An attention on tensors of device memory, all of one buffer's bytes: 0x2c2c is a small number in f16. */
#ifndef TESSERA_TESTS_ATTEND_H
#define TESSERA_TESTS_ATTEND_H

#include "abi.h"

static const tsr_backend* backend;
static tsr_context* context;

typedef struct {
  tsr_buffer* buffers[5];
  tsr_tensor q, k, v, out, lse;
  tsr_attention_desc desc;
  tsr_buffer* workspace;
} attend;

/* The first status that isn't ok; later steps are not tried. */
static inline tsr_status attend_init(attend* a, int64_t b, int64_t sq, int64_t sk, int64_t hq, int64_t hkv, int64_t d) {
  memset(a, 0, sizeof *a);
  const uint64_t bytes[] = {(uint64_t)(b * sq * hq * d * 2), (uint64_t)(b * sk * hkv * d * 2),
                            (uint64_t)(b * sk * hkv * d * 2), (uint64_t)(b * sq * hq * d * 2),
                            (uint64_t)(b * hq * sq * 4)};
  void* data[5];
  for (int i = 0; i < 5; ++i) {
    tsr_status status = backend->buffer_create(context, bytes[i], &a->buffers[i]);
    data[i] = backend->buffer_data(a->buffers[i]);
    if (status == TSR_OK) status = backend->fill(context, NULL, data[i], i < 3 ? 0x2c : 0xff, bytes[i]);
    if (status != TSR_OK) return status;
  }
  a->q = tensor(TSR_F16, data[0], b, sq, hq, d), a->k = tensor(TSR_F16, data[1], b, sk, hkv, d);
  a->v = tensor(TSR_F16, data[2], b, sk, hkv, d), a->out = tensor(TSR_F16, data[3], b, sq, hq, d);
  a->lse = tensor(TSR_F32, data[4], b, hq, sq, -1);
  a->desc = (tsr_attention_desc){.struct_size = sizeof a->desc, .q = &a->q, .k = &a->k, .v = &a->v, .out = &a->out};
  a->desc.lse = &a->lse;
  a->desc.causal = 1;
  uint64_t needed = 0;
  tsr_status status = backend->attention_workspace(context, &a->desc, &needed);
  if (status == TSR_OK && needed > 0) status = backend->buffer_create(context, needed, &a->workspace);
  a->desc.workspace = backend->buffer_data(a->workspace), a->desc.workspace_bytes = needed;
  return status;
}

static inline void attend_free(attend* a) {
  for (int i = 0; i < 5; ++i) backend->buffer_destroy(a->buffers[i]);
  backend->buffer_destroy(a->workspace);
}

#endif
