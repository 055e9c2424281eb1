/* Lets programs that keep their tensors in host memory run on a device that can't read it: a table whose computing calls
 * bring each tensor to the device, run the back end's own, wait, and bring results back. Around every tensor lies a guard
 * that no kernel may touch, and what is no output has to come back as it went. */
#ifndef TESSERA_TESTS_DEVICE_H
#define TESSERA_TESTS_DEVICE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "reach.h"
#include "tessera/tessera.h"

enum {
  GUARD = 256,
  REGIONS = 64
};

/* What may happen to the memory of a region. */
typedef enum {
  READ_ONLY,
  WRITTEN,
  SCRATCH
} use;

typedef struct {
  char* host;
  uint64_t bytes;
  use used;
  tsr_buffer* buffer;
  char* device; /* where host[0] is */
} region;

typedef struct {
  tsr_context* context;
  region regions[REGIONS];
  tsr_tensor tensors[REGIONS];
  int region_of[REGIONS];
  int region_count, tensor_count;
} transfer;

static const tsr_backend* real_backend;

static inline int add_region(transfer* t, void* host, uint64_t bytes, use used) {
  int at = 0;
  while (at < t->region_count && t->regions[at].host != host) ++at;
  region* r = &t->regions[at];
  if (at == t->region_count) {
    if (++t->region_count > REGIONS) abort();
    r->host = host;
  }
  if (bytes > r->bytes) r->bytes = bytes;
  if (used > r->used) r->used = used;
  return at;
}

/* The tensor as the device gets it. Its data is known after upload(). */
static inline const tsr_tensor* stage(transfer* t, const tsr_tensor* from, use used) {
  if (from == NULL || from->struct_size < 4 || from->struct_size > 65536) return from;
  if (t->tensor_count == REGIONS) abort();
  tsr_tensor* to = &t->tensors[t->tensor_count];
  memset(to, 0, sizeof *to);
  memcpy(to, from, from->struct_size < sizeof *to ? from->struct_size : sizeof *to);
  if (to->struct_size > sizeof *to) to->struct_size = sizeof *to;
  const int64_t reach = reach_of(to, 1 << 28);
  if (to->data == NULL || reach < 0) return from;
  t->region_of[t->tensor_count++] = add_region(t, to->data, (uint64_t)reach, used);
  return to;
}

/* As aligned as the host's memory, modulo 64, so that the back end sees the same alignment. */
static inline void upload(transfer* t) {
  for (int i = 0; i < t->region_count; ++i) {
    region* r = &t->regions[i];
    const uint64_t shift = (uintptr_t)r->host % 64, all = GUARD + 64 + r->bytes + GUARD;
    CHECK(real_backend->buffer_create(t->context, all, &r->buffer) == TSR_OK, "%s",
          real_backend->last_error(t->context));
    if (r->buffer == NULL) exit(1);
    char* base = real_backend->buffer_data(r->buffer);
    r->device = base + GUARD + shift;
    const int ok =
        real_backend->fill(t->context, NULL, base, 0xa5, all) == TSR_OK &&
        real_backend->copy(t->context, NULL, r->device, r->host, r->bytes, TSR_COPY_HOST_TO_DEVICE) == TSR_OK;
    CHECK(ok, "%s", real_backend->last_error(t->context));
  }
  for (int i = 0; i < t->tensor_count; ++i) t->tensors[i].data = t->regions[t->region_of[i]].device;
}

static inline int only(const unsigned char* from, const unsigned char* to, unsigned char value) {
  while (from < to && *from == value) ++from;
  return from == to;
}

static inline void download(transfer* t) {
  CHECK(real_backend->stream_synchronize(t->context, NULL) == TSR_OK, "%s", real_backend->last_error(t->context));
  for (int i = 0; i < t->region_count; ++i) {
    region* r = &t->regions[i];
    const uint64_t all = real_backend->buffer_bytes(r->buffer), shift = (uintptr_t)r->host % 64;
    unsigned char *copy = malloc(all), *data = copy + GUARD + shift;
    CHECK(real_backend->copy(t->context, NULL, copy, real_backend->buffer_data(r->buffer), all,
                             TSR_COPY_DEVICE_TO_HOST) == TSR_OK &&
              real_backend->stream_synchronize(t->context, NULL) == TSR_OK,
          "%s", real_backend->last_error(t->context));
    CHECK(only(copy, data, 0xa5) && only(data + r->bytes, copy + all, 0xa5), "memory beside a tensor was written");
    if (r->used == WRITTEN) memcpy(r->host, data, r->bytes);
    if (r->used == READ_ONLY) CHECK(memcmp(r->host, data, r->bytes) == 0, "an input was written");
    free(copy);
  }
}

static inline tsr_status finish_transfer(transfer* t, tsr_status status) {
  /* Also behind a call that was refused: copies of the caller's memory may still be under way. */
  if (status == TSR_OK)
    download(t);
  else
    real_backend->stream_synchronize(t->context, NULL);
  for (int i = 0; i < t->region_count; ++i) real_backend->buffer_destroy(t->regions[i].buffer);
  free(t);
  return status;
}

static inline transfer* new_transfer(tsr_context* context) {
  transfer* t = calloc(1, sizeof *t);
  t->context = context;
  return t;
}

static inline void copy_struct(void* to, size_t size, const void* from) {
  uint32_t given;
  memcpy(&given, from, sizeof given);
  memset(to, 0, size);
  memcpy(to, from, given < size ? given : size);
  if (given > size) given = (uint32_t)size;
  memcpy(to, &given, sizeof given);
}

static inline tsr_attention_desc stage_attention(transfer* t, const tsr_attention_desc* desc) {
  tsr_attention_desc d;
  copy_struct(&d, sizeof d, desc);
  const tsr_tensor** inputs[] = {
      &d.q,          &d.k,          &d.v,          &d.query_offset, &d.alibi_slopes, &d.bias,    &d.mask,   &d.sinks,
      &d.seq_lens_q, &d.seq_lens_k, &d.page_table, &d.cu_seqlens_q, &d.cu_seqlens_k, &d.k_scale, &d.v_scale};
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; ++i) *inputs[i] = stage(t, *inputs[i], READ_ONLY);
  d.out = stage(t, d.out, WRITTEN), d.lse = stage(t, d.lse, WRITTEN);
  if (d.workspace && d.workspace_bytes) add_region(t, d.workspace, d.workspace_bytes, SCRATCH);
  return d;
}

static inline void place_workspace(const transfer* t, tsr_attention_desc* d) {
  for (int i = 0; i < t->region_count; ++i)
    if (d->workspace && t->regions[i].host == (char*)d->workspace) d->workspace = t->regions[i].device;
}

/* Staged in the caller's structs, which have to live until the call. */
static inline tsr_append_desc stage_append(transfer* t, const tsr_append_desc* desc, tsr_rope_desc* rope) {
  tsr_append_desc a;
  copy_struct(&a, sizeof a, desc);
  const tsr_tensor** inputs[] = {&a.k, &a.v, &a.q, &a.page_table, &a.new_lens, &a.cu_seqlens, &a.k_scale, &a.v_scale};
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; ++i) *inputs[i] = stage(t, *inputs[i], READ_ONLY);
  a.q_out = stage(t, a.q_out, WRITTEN);
  a.cache_k = stage(t, a.cache_k, WRITTEN), a.cache_v = stage(t, a.cache_v, WRITTEN);
  a.lengths = stage(t, a.lengths, a.flags & TSR_APPEND_ADVANCE ? WRITTEN : READ_ONLY);
  if (a.rope) {
    copy_struct(rope, sizeof *rope, a.rope);
    rope->positions = stage(t, rope->positions, READ_ONLY);
    a.rope = rope;
  }
  return a;
}

static inline tsr_status staged_attention(tsr_context* context, tsr_stream* stream, const tsr_attention_desc* desc) {
  if (context == NULL || real_backend->supports(context, desc) != TSR_OK)
    return real_backend->attention(context, stream, desc);
  transfer* t = new_transfer(context);
  tsr_attention_desc d = stage_attention(t, desc);
  upload(t);
  place_workspace(t, &d);
  return finish_transfer(t, real_backend->attention(context, stream, &d));
}

static inline tsr_status staged_append(tsr_context* context, tsr_stream* stream, const tsr_append_desc* desc) {
  transfer* t = new_transfer(context);
  tsr_rope_desc rope;
  const tsr_append_desc a = stage_append(t, desc, &rope);
  upload(t);
  return finish_transfer(t, real_backend->kv_append(context, stream, &a));
}

static inline tsr_status staged_decode(tsr_context* context, tsr_stream* stream, const tsr_decode_desc* desc) {
  uint64_t bytes;
  if (real_backend->decode_workspace(context, desc, &bytes) != TSR_OK)
    return real_backend->decode(context, stream, desc);
  transfer* t = new_transfer(context);
  tsr_decode_desc d = *desc;
  tsr_rope_desc rope;
  tsr_append_desc append;
  tsr_attention_desc attention = stage_attention(t, desc->attention);
  if (desc->append) append = stage_append(t, desc->append, &rope), d.append = &append;
  upload(t);
  place_workspace(t, &attention);
  d.attention = &attention;
  return finish_transfer(t, real_backend->decode(context, stream, &d));
}

static inline tsr_status staged_merge(tsr_context* context, tsr_stream* stream, const tsr_merge_desc* desc) {
  enum {
    MOST = 16
  };
  if (desc->count < 1 || desc->count > MOST || !desc->outs || !desc->lses)
    return real_backend->merge(context, stream, desc);
  transfer* t = new_transfer(context);
  const tsr_tensor *outs[MOST], *lses[MOST];
  tsr_merge_desc m = *desc;
  for (int i = 0; i < m.count; ++i) outs[i] = stage(t, m.outs[i], READ_ONLY), lses[i] = stage(t, m.lses[i], READ_ONLY);
  m.outs = outs, m.lses = lses;
  m.out = stage(t, m.out, WRITTEN), m.lse = stage(t, m.lse, WRITTEN);
  upload(t);
  return finish_transfer(t, real_backend->merge(context, stream, &m));
}

/* The same back end, for tensors in host memory. */
static inline const tsr_backend* through_host(const tsr_backend* backend) {
  static tsr_backend table;
  real_backend = backend;
  table = *backend;
  table.attention = staged_attention;
  table.kv_append = staged_append;
  table.decode = staged_decode;
  table.merge = staged_merge;
  return &table;
}

#endif
