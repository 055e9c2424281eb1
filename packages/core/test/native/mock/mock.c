/*
 * A back end that does as it is told, for the tests of the addon.
 *
 * The kernel's name is the order: "sleep:MS" (looks at the cancel flag), "stubborn:MS" (doesn't), "fail:STATUS",
 * "fault" (async: the device breaks when the work runs), "workspace:BYTES". Every attention writes out[0] = the how manieth
 * call it was, out[1] = the sum of q; an output of fewer than 2 floats is left alone.
 *
 * MOCK_OUT_OF_MEMORY=n in the environment: the n-th call that could fail from then on does, once, as if memory had run out.
 *
 * -DMOCK_ASYNC queues: a thread runs what is enqueued. Other -D make it break the contract, see the end.
 */
#include "mock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether this call is the one that memory runs out at. A new value of the variable counts anew. */
static int starved(void) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static char told[32];
  static long left;
  const char* order = getenv("MOCK_OUT_OF_MEMORY");
  if (!order || !*order) return 0;
  pthread_mutex_lock(&mutex);
  if (strncmp(told, order, sizeof told - 1) != 0) {
    snprintf(told, sizeof told, "%s", order);
    left = atol(order);
  }
  const int now = --left == 0;
  pthread_mutex_unlock(&mutex);
  return now;
}
#define STARVED() \
  if (starved()) return failed(TSR_OUT_OF_MEMORY, "memory ran out as ordered")

static tsr_status probe(tsr_probe_result* result) {
  const char* order = getenv("MOCK_PROBE");
  if (order && !strcmp(order, "crash")) raise(SIGSEGV);
  if (order && !strcmp(order, "hang")) sleep_ms(60000);
  if (order && !strcmp(order, "exit")) _exit(7);
  if (order && !strcmp(order, "driver-missing")) {
    result->state = TSR_PROBE_DRIVER_MISSING;
    strcpy(result->reason, "no mock driver");
    strcpy(result->fix, "install the mock driver");
    return TSR_OK;
  }
  if (order && !strcmp(order, "full")) memset(result->reason, 'x', sizeof result->reason);
  result->device_count = MOCK_LIES == 3 ? 1000000000 : MOCK_LIES == 4 ? -1 : 1;
  if (MOCK_LIES == 5) result->struct_size = 4;
  return TSR_OK;
}

static tsr_status device_info(int32_t device, tsr_device_info* info) {
  if (device != 0) return failed(TSR_DEVICE_UNAVAILABLE, "device must be 0");
  info->index = device;
  if (MOCK_LIES == 8) info->struct_size += 8;
#ifndef MOCK_NO_HOST_MEMORY
  info->caps = TSR_DEVICE_HOST_MEMORY | TSR_DEVICE_GRAPHS | (ASYNC ? TSR_DEVICE_ASYNC : 0);
#else
  info->caps = ASYNC ? TSR_DEVICE_ASYNC : 0;
#endif
  strcpy(info->name, "mock device");
  strcpy(info->arch, "mock");
  info->memory_bytes = 1u << 30;
  return TSR_OK;
}

static tsr_status context_create(const tsr_context_desc* desc, tsr_context** context) {
  STARVED();
  if (desc->threads == 13) return failed(TSR_OUT_OF_MEMORY, "unlucky number of threads");
  tsr_context* c = calloc(1, sizeof *c);
  pthread_mutex_init(&c->mutex, NULL);
  pthread_cond_init(&c->changed, NULL);
  if (ASYNC) pthread_create(&c->thread, NULL, run_stream, c);
  atomic_fetch_add(&contexts, 1);
  *context = c;
  return TSR_OK;
}

static void context_destroy(tsr_context* c) {
  if (ASYNC) {
    pthread_mutex_lock(&c->mutex);
    c->ending = 1;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    pthread_join(c->thread, NULL);
  }
  free(c);
  atomic_fetch_sub(&contexts, 1);
}

static const char* last_error(const tsr_context* context) {
  (void)context;
  return error_text;
}

static tsr_status stream_create(tsr_context* c, tsr_stream** stream) {
  (void)c, (void)stream;
  return failed(TSR_UNSUPPORTED, "the mock has one stream");
}
static tsr_status stream_wrap(tsr_context* c, void* native, tsr_stream** stream) {
  (void)native;
  return stream_create(c, stream);
}
static void stream_destroy(tsr_stream* stream) { (void)stream; }
static void* stream_native(tsr_context* c, tsr_stream* stream) {
  (void)c, (void)stream;
  return NULL;
}

static tsr_status faulty(void) {
  return atomic_load(&fault) ? failed(TSR_DEVICE_ERROR, "the mock device broke") : TSR_OK;
}

static void drain(tsr_context* c) {
  pthread_mutex_lock(&c->mutex);
  while (ASYNC && (c->first || c->busy)) pthread_cond_wait(&c->changed, &c->mutex);
  pthread_mutex_unlock(&c->mutex);
}

/* Whether somebody who wanted to wait for the queue was told that memory ran out: what they free then may be in use, and they
 * can't know. As cudaFree and cudaEventDestroy do, the mock waits in their place; else it lets mistakes show. */
static atomic_int blind;

static tsr_status stream_synchronize(tsr_context* c, tsr_stream* stream) {
  (void)stream;
  if (starved()) {
    atomic_store(&blind, 1);
    return failed(TSR_OUT_OF_MEMORY, "memory ran out as ordered");
  }
  if (c->capturing) return failed(TSR_DEVICE_ERROR, "the stream is being captured");
  drain(c);
  return faulty();
}

static tsr_status event_create(tsr_context* c, tsr_event** event) {
  STARVED();
  *event = calloc(1, sizeof **event);
  (*event)->context = c;
  atomic_fetch_add(&events, 1);
  return TSR_OK;
}
static void event_destroy(tsr_event* event) {
  if (atomic_load(&blind)) drain(event->context);
  free(event);
  atomic_fetch_sub(&events, 1);
}
static tsr_status event_record(tsr_context* c, tsr_event* event, tsr_stream* stream) {
  STARVED();
  (void)stream;
  atomic_store(&event->done, 0);
  op o = {.kind = OP_EVENT, .dst = event};
  return enqueue(c, &o);
}
static tsr_status event_synchronize(tsr_context* c, tsr_event* event) {
  pthread_mutex_lock(&c->mutex);
  while (!atomic_load(&event->done)) pthread_cond_wait(&c->changed, &c->mutex);
  pthread_mutex_unlock(&c->mutex);
  return faulty();
}
static tsr_status event_elapsed(tsr_context* c, tsr_event* start, tsr_event* stop, double* ms) {
  tsr_status status = event_synchronize(c, start);
  if (status == TSR_OK) status = event_synchronize(c, stop);
  *ms = stop->reached_ms - start->reached_ms;
  return status;
}
static tsr_status stream_wait(tsr_context* c, tsr_stream* stream, tsr_event* event) {
  (void)stream;
  return event_synchronize(c, event);
}

static tsr_status buffer_create(tsr_context* c, uint64_t bytes, tsr_buffer** buffer) {
  STARVED();
  if (bytes > 1u << 30) return failed(TSR_OUT_OF_MEMORY, "the mock device has 1 GiB");
  *buffer = malloc(sizeof **buffer);
  (*buffer)->context = c;
  (*buffer)->data = malloc(bytes);
  (*buffer)->bytes = bytes;
  atomic_fetch_add(&buffers, 1);
  return TSR_OK;
}
static tsr_status buffer_wrap(tsr_context* c, void* data, uint64_t bytes, tsr_buffer** buffer) {
  (void)c, (void)data, (void)bytes, (void)buffer;
  return failed(TSR_UNSUPPORTED, "not in the mock");
}
static void buffer_destroy(tsr_buffer* buffer) {
  if (atomic_load(&blind)) drain(buffer->context);
  memset(buffer->data, 0xdd, buffer->bytes); /* whoever still uses it shall notice */
  free(buffer->data);
  free(buffer);
  atomic_fetch_sub(&buffers, 1);
}
static void* buffer_data(const tsr_buffer* buffer) { return buffer->data; }
static uint64_t buffer_bytes(const tsr_buffer* buffer) { return buffer->bytes; }

static tsr_status copy(tsr_context* c, tsr_stream* stream, void* dst, const void* src, uint64_t bytes,
                       tsr_copy_kind kind) {
  STARVED();
  (void)stream;
  if (kind == TSR_COPY_HOST_TO_DEVICE && bytes == 666) return failed(TSR_DEVICE_ERROR, "666 bytes can't be written");
  op o = {.kind = OP_COPY, .dst = dst, .src = src, .bytes = bytes};
  return enqueue(c, &o);
}
static tsr_status fill(tsr_context* c, tsr_stream* stream, void* dst, uint8_t value, uint64_t bytes) {
  STARVED();
  (void)stream;
  op o = {.kind = OP_FILL, .dst = dst, .value = value, .bytes = bytes};
  return enqueue(c, &o);
}

static int32_t kernel_count(tsr_context* c) {
  (void)c;
  return MOCK_LIES == 6 ? 1000000000 : MOCK_LIES == 7 ? -1 : 1;
}
static tsr_status kernel_info(tsr_context* c, int32_t index, tsr_kernel_info* info) {
  (void)c;
  if (index != 0 && MOCK_LIES != 6) return failed(TSR_INVALID_ARGUMENT, "index must be 0");
  if (MOCK_LIES == 9) info->struct_size = 0;
  info->family = TSR_FAMILY_DECODE;
  strcpy(info->name, "sleep");
  info->usable = 1;
  info->alignment = 1;
  info->max_head_dim = 64;
  info->head_dim_step = 1;
  info->q_dtypes = 1u << TSR_F32;
  info->kv_dtypes = 1u << TSR_F32 | 1u << TSR_Q8_0;
  snprintf(info->summary, sizeof info->summary, "contexts=%d buffers=%d graphs=%d events=%d calls=%d", contexts,
           buffers, graphs, events, calls);
  return TSR_OK;
}

static int64_t elements(const tsr_tensor* t) {
  int64_t count = 1;
  for (int32_t i = 0; i < t->rank; i++) count *= t->shape[i];
  return count;
}

static tsr_status check(const tsr_tensor* t, const char* name) {
  if (t && t->bytes && (uint64_t)elements(t) * 4 > t->bytes) {
    snprintf(error_text, sizeof error_text, "%s reaches beyond its %llu bytes", name, (unsigned long long)t->bytes);
    return TSR_INVALID_ARGUMENT;
  }
  return TSR_OK;
}

static tsr_status supports(tsr_context* c, const tsr_attention_desc* desc) {
  STARVED();
  (void)c;
  tsr_status status = check(desc->q, "q");
  if (status == TSR_OK) status = check(desc->out, "out");
  if (status == TSR_OK && desc->softcap == 99) return failed(TSR_UNSUPPORTED, "softcap 99 is not in the mock");
  return status;
}

static tsr_status explain(tsr_context* c, const tsr_attention_desc* desc, tsr_explanation* e) {
  tsr_status status = supports(c, desc);
  if (status != TSR_OK) return status;
  e->family = TSR_FAMILY_PREFILL;
  strcpy(e->kernel, "sleep");
  e->tile_q = 1;
  e->tile_k = 2;
  e->stages = 3;
  e->splits = desc->num_splits;
  e->threads = desc->causal;
  e->workspace_bytes = (uint64_t)desc->present;
  snprintf(e->notes, sizeof e->notes, "align=%d window=%lld,%lld scale=%g max=%lld,%lld offset=%d lse=%d", desc->align,
           (long long)desc->window_left, (long long)desc->window_right, (double)desc->scale,
           (long long)desc->max_seqlen_q, (long long)desc->max_seqlen_k, desc->query_offset != NULL, desc->lse != NULL);
  for (uint32_t i = 0; i < 3 && i < e->rejection_capacity; i++) {
    snprintf(e->rejections[i].kernel, TSR_NAME, "other%u", i);
    snprintf(e->rejections[i].reason, TSR_TEXT, "reason %u", i);
  }
  e->rejection_count = 3;
  return TSR_OK;
}

static tsr_status attention_workspace(tsr_context* c, const tsr_attention_desc* desc, uint64_t* bytes) {
  STARVED();
  tsr_status status = supports(c, desc);
  if (status != TSR_OK) return status;
  *bytes = desc->kernel && !strncmp(desc->kernel, "workspace:", 10) ? strtoull(desc->kernel + 10, NULL, 10) : 0;
  return TSR_OK;
}

static tsr_status attention(tsr_context* c, tsr_stream* stream, const tsr_attention_desc* desc) {
  STARVED();
  (void)stream;
  tsr_status status = supports(c, desc);
  if (status != TSR_OK) return status;
  op o = {.kind = OP_ATTENTION,
          .dst = desc->out->data,
          .q = desc->q->data,
          .q_count = elements(desc->q),
          .out_count = elements(desc->out),
          .workspace = desc->workspace,
          .workspace_bytes = desc->workspace_bytes,
          .cancel = desc->cancel};
  if (desc->kernel) snprintf(o.order, sizeof o.order, "%s", desc->kernel);
  return enqueue(c, &o);
}

/* Copies k to cache_k, and tells in v[0] what rope said. */
static tsr_status kv_append(tsr_context* c, tsr_stream* stream, const tsr_append_desc* desc) {
  STARVED();
  (void)stream;
  if (desc->rope && desc->rope->theta <= 0) return failed(TSR_INVALID_ARGUMENT, "rope.theta must be > 0");
  op o = {.kind = OP_COPY, .dst = desc->cache_k->data, .src = desc->k->data, .bytes = (uint64_t)elements(desc->k) * 4};
  return enqueue(c, &o);
}

static tsr_status decode_workspace(tsr_context* c, const tsr_decode_desc* desc, uint64_t* bytes) {
  return attention_workspace(c, desc->attention, bytes);
}
static tsr_status decode(tsr_context* c, tsr_stream* stream, const tsr_decode_desc* desc) {
  STARVED();
  if (desc->append) {
    tsr_status status = kv_append(c, stream, desc->append);
    if (status != TSR_OK) return status;
  }
  return attention(c, stream, desc->attention);
}

/* Copies the last part. */
static tsr_status merge(tsr_context* c, tsr_stream* stream, const tsr_merge_desc* desc) {
  STARVED();
  (void)stream;
  if (desc->count < 1) return failed(TSR_INVALID_ARGUMENT, "nothing to merge");
  const tsr_tensor* last = desc->outs[desc->count - 1];
  op o = {.kind = OP_COPY, .dst = desc->out->data, .src = last->data, .bytes = (uint64_t)elements(last) * 4};
  return enqueue(c, &o);
}

static tsr_status graph_begin(tsr_context* c, tsr_stream* stream) {
  STARVED();
  (void)stream;
  c->capturing = 1;
  c->captured_first = c->captured_last = NULL;
  return TSR_OK;
}
static tsr_status graph_end(tsr_context* c, tsr_stream* stream, tsr_graph** graph) {
  (void)stream;
  c->capturing = 0;
  if (starved()) {
    for (op *o = c->captured_first, *next; o; o = next) {
      next = o->next;
      free(o);
    }
    return failed(TSR_OUT_OF_MEMORY, "memory ran out as ordered");
  }
  *graph = malloc(sizeof **graph);
  (*graph)->first = c->captured_first;
  atomic_fetch_add(&graphs, 1);
  return TSR_OK;
}
static tsr_status graph_launch(tsr_context* c, tsr_graph* graph, tsr_stream* stream) {
  STARVED();
  (void)stream;
  for (op* o = graph->first; o; o = o->next) {
    tsr_status status = enqueue(c, o);
    if (status != TSR_OK) return status;
  }
  return TSR_OK;
}
static void graph_destroy(tsr_graph* graph) {
  for (op *o = graph->first, *next; o; o = next) {
    next = o->next;
    free(o);
  }
  free(graph);
  atomic_fetch_sub(&graphs, 1);
}

/* Static destructors of a library must not run under its feet. */
__attribute__((destructor)) static void unloaded(void) {
  if (atomic_load(&inside)) abort();
}

static const tsr_backend table = {
#ifdef MOCK_SHORT
    .struct_size = sizeof(tsr_backend) - sizeof(void*),
#elif MOCK_LIES == 2
    .struct_size = 4,
#else
    .struct_size = sizeof(tsr_backend),
#endif
#ifdef MOCK_ABI
    .abi_version = MOCK_ABI,
#elif MOCK_LIES == 1
    .abi_version = 9, /* though its entry answered to another */
#else
    .abi_version = TSR_ABI_VERSION,
#endif
    .name = ASYNC ? "mock-async" : "mock",
    .version = MOCK_LIES == 10 ? "" : "1.2.3",
    .probe = probe,
    .device_info = device_info,
    .context_create = context_create,
    .context_destroy = context_destroy,
    .last_error = last_error,
    .stream_create = stream_create,
    .stream_wrap = stream_wrap,
    .stream_destroy = stream_destroy,
    .stream_native = stream_native,
    .stream_synchronize = stream_synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_synchronize = event_synchronize,
    .event_elapsed = event_elapsed,
    .stream_wait = stream_wait,
    .buffer_create = buffer_create,
    .buffer_wrap = buffer_wrap,
    .buffer_destroy = buffer_destroy,
    .buffer_data = buffer_data,
    .buffer_bytes = buffer_bytes,
    .copy = copy,
    .fill = fill,
    .kernel_count = kernel_count,
    .kernel_info = kernel_info,
    .supports = supports,
    .explain = explain,
    .attention_workspace = attention_workspace,
    .attention = attention,
#ifndef MOCK_HOLE
    .kv_append = kv_append,
#endif
    .decode_workspace = decode_workspace,
    .decode = decode,
    .merge = merge,
    .graph_begin = graph_begin,
    .graph_end = graph_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
};

#ifndef MOCK_NO_ENTRY
TSR_EXPORT const tsr_backend* tsr_backend_entry(uint32_t version) {
#ifdef MOCK_ABI
  if (version != MOCK_ABI) return NULL;
#elif defined(MOCK_SPEAKS_NOTHING)
  return NULL;
#endif
  (void)version;
  return &table;
}
#endif

#ifdef MOCK_NEEDS_SYMBOL
extern void tessera_no_such_symbol(void);
TSR_EXPORT void needs(void) { tessera_no_such_symbol(); }
#endif
