/* What only a GPU shows: calls return at once and keep the caller's current context; every call can be recorded; streams
 * and memory of the caller; errors, and what is left after them. Skips itself where there is no device. */
#define _POSIX_C_SOURCE 200809L
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"

static const tsr_backend* backend;
static tsr_context* context;

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#define OK(call) CHECK((call) == TSR_OK, "%s", backend->last_error(context))
#define SAYS(word) CHECK(strstr(backend->last_error(context), word), "%s", backend->last_error(context))

/* f16 tensors of device memory, all of one buffer's bytes: 0x2c2c is a small number. */
typedef struct {
  tsr_buffer* buffers[5];
  tsr_tensor q, k, v, out, lse;
  tsr_attention_desc desc;
  tsr_buffer* workspace;
} attend;

static void attend_init(attend* a, int64_t b, int64_t sq, int64_t sk, int64_t hq, int64_t hkv, int64_t d) {
  memset(a, 0, sizeof *a);
  const uint64_t bytes[] = {(uint64_t)(b * sq * hq * d * 2), (uint64_t)(b * sk * hkv * d * 2),
                            (uint64_t)(b * sk * hkv * d * 2), (uint64_t)(b * sq * hq * d * 2),
                            (uint64_t)(b * hq * sq * 4)};
  void* data[5];
  for (int i = 0; i < 5; ++i) {
    OK(backend->buffer_create(context, bytes[i], &a->buffers[i]));
    data[i] = backend->buffer_data(a->buffers[i]);
    OK(backend->fill(context, NULL, data[i], i < 3 ? 0x2c : 0xff, bytes[i]));
  }
  a->q = tensor(TSR_F16, data[0], b, sq, hq, d), a->k = tensor(TSR_F16, data[1], b, sk, hkv, d);
  a->v = tensor(TSR_F16, data[2], b, sk, hkv, d), a->out = tensor(TSR_F16, data[3], b, sq, hq, d);
  a->lse = tensor(TSR_F32, data[4], b, hq, sq, -1);
  a->desc = (tsr_attention_desc){.struct_size = sizeof a->desc, .q = &a->q, .k = &a->k, .v = &a->v, .out = &a->out};
  a->desc.lse = &a->lse;
  a->desc.causal = 1;
  uint64_t needed = 0;
  OK(backend->attention_workspace(context, &a->desc, &needed));
  if (needed == 0) return;
  OK(backend->buffer_create(context, needed, &a->workspace));
  a->desc.workspace = backend->buffer_data(a->workspace), a->desc.workspace_bytes = needed;
}

static void attend_free(attend* a) {
  for (int i = 0; i < 5; ++i) backend->buffer_destroy(a->buffers[i]);
  backend->buffer_destroy(a->workspace);
}

/* Every value is 0x2c2c, so that is the average of any of them. */
static int all_right(attend* a) {
  const uint64_t bytes = backend->buffer_bytes(a->buffers[3]);
  unsigned char* out = malloc(bytes);
  OK(backend->copy(context, NULL, out, a->out.data, bytes, TSR_COPY_DEVICE_TO_HOST));
  OK(backend->stream_synchronize(context, NULL));
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < bytes; i += 2) {
    const int low = out[i] | out[i + 1] << 8, off = low - 0x2c2c;
    wrong += off < -1 || off > 1;
  }
  free(out);
  return wrong == 0;
}

/* The driver's own word on what is current: CUcontext cuCtxGetCurrent. */
static int (*get_current)(void** current);

static void* current(void) {
  void* c = NULL;
  if (get_current) get_current(&c);
  return c;
}

static void keeps_current(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  *(void**)&get_current = driver ? dlsym(driver, "cuCtxGetCurrent") : NULL;
  CHECK(get_current != NULL, "no cuCtxGetCurrent");
  CHECK(current() == NULL, "a context is current, though this program made none so: %p", current());
  attend a;
  attend_init(&a, 1, 64, 64, 2, 2, 64);
  OK(backend->attention(context, NULL, &a.desc));
  tsr_stream* stream = NULL;
  tsr_event* event = NULL;
  OK(backend->stream_create(context, &stream));
  OK(backend->event_create(context, &event));
  OK(backend->event_record(context, event, stream));
  backend->event_destroy(event), backend->stream_destroy(stream);
  CHECK(all_right(&a), "the result is wrong");
  attend_free(&a);
  CHECK(current() == NULL, "a context is current behind the calls: %p", current());
}

/* Work of some hundred milliseconds, a copy to pageable memory behind it: both calls return long before. */
static void returns_at_once(void) {
  attend a;
  attend_init(&a, 1, 16384, 16384, 32, 32, 128);
  a.desc.causal = 0;
  OK(backend->attention(context, NULL, &a.desc)); /* loads the kernel */
  const uint64_t bytes = backend->buffer_bytes(a.buffers[3]);
  unsigned char *out = calloc(1, bytes), *in = malloc(bytes);
  memset(in, 0x2c, bytes);
  unsigned char warm[70000];
  OK(backend->copy(context, NULL, warm, a.out.data, sizeof warm, TSR_COPY_DEVICE_TO_HOST)); /* page-locks memory */
  OK(backend->stream_synchronize(context, NULL));
  const double start = seconds();
  for (int i = 0; i < 20; ++i) OK(backend->attention(context, NULL, &a.desc));
  OK(backend->copy(context, NULL, a.q.data, in, bytes, TSR_COPY_HOST_TO_DEVICE));
  OK(backend->copy(context, NULL, out, a.out.data, bytes, TSR_COPY_DEVICE_TO_HOST));
  const double enqueued = seconds() - start;
  const int early = out[bytes - 1] != 0;
  OK(backend->stream_synchronize(context, NULL));
  const double all = seconds() - start;
  printf("20 attentions and two copies of %.0f MB: enqueued in %.2f ms, done after %.0f ms\n", (double)bytes / 1e6,
         enqueued * 1e3, all * 1e3);
  CHECK(enqueued < all / 4 && !early, "%f of %f seconds", enqueued, all);
  CHECK(out[0] == out[2] && out[bytes - 1] == 0x2c && all_right(&a), "the result is wrong");
  free(out), free(in);
  attend_free(&a);
}

static void enqueue_cost(void) {
  enum {
    CALLS = 2000
  };
  for (int decode = 0; decode < 2; ++decode) {
    attend a;
    attend_init(&a, 1, decode ? 1 : 128, 512, 8, 8, 128);
    double least = 1;
    for (int round = 0; round < 10; ++round) {
      OK(backend->stream_synchronize(context, NULL));
      const double start = seconds();
      for (int i = 0; i < CALLS / 10; ++i) backend->attention(context, NULL, &a.desc);
      const double each = (seconds() - start) / (CALLS / 10);
      if (each < least) least = each;
    }
    printf("enqueue of %s: %.2f us\n", decode ? "a decode step" : "a prefill", least * 1e6);
    CHECK(least < 20e-6, "%f us", least * 1e6);
    CHECK(all_right(&a), "the result is wrong");
    attend_free(&a);
  }
}

/* attention, append, decode and merge into one graph: none of them allocates, waits or copies. */
static void records_everything(void) {
  attend a, step;
  attend_init(&a, 2, 128, 128, 4, 2, 64);
  attend_init(&step, 2, 1, 256, 4, 2, 64);
  int32_t starts[2] = {3, 5}, lengths[2];
  tsr_buffer *length_buffer = NULL, *rows = NULL;
  OK(backend->buffer_create(context, sizeof starts, &length_buffer));
  OK(backend->buffer_create(context, 2 * 2 * 64 * 2, &rows));
  OK(backend->fill(context, NULL, backend->buffer_data(rows), 0x2c, 2 * 2 * 64 * 2));
  OK(backend->copy(context, NULL, backend->buffer_data(length_buffer), starts, sizeof starts, TSR_COPY_HOST_TO_DEVICE));
  tsr_tensor tlengths = tensor(TSR_I32, backend->buffer_data(length_buffer), 2, -1, -1, -1);
  tsr_tensor row = tensor(TSR_F16, backend->buffer_data(rows), 2, 1, 2, 64);
  tsr_append_desc append = {.struct_size = sizeof append, .flags = TSR_APPEND_ADVANCE, .k = &row, .v = &row};
  append.cache_k = &step.k, append.cache_v = &step.v, append.lengths = &tlengths;
  step.desc.seq_lens_k = &tlengths;
  tsr_decode_desc decode = {.struct_size = sizeof decode, .append = &append, .attention = &step.desc};
  uint64_t needed = 0;
  OK(backend->decode_workspace(context, &decode, &needed));
  CHECK(needed <= step.desc.workspace_bytes, "%llu bytes of workspace", (unsigned long long)needed);
  const tsr_tensor *outs[] = {&a.out, &a.out}, *lses[] = {&a.lse, &a.lse};
  tsr_merge_desc merge = {.struct_size = sizeof merge, .count = 2, .outs = outs, .lses = lses, .out = &a.q};
  tsr_graph* graph = NULL;
  OK(backend->stream_synchronize(context, NULL));
  OK(backend->graph_begin(context, NULL));
  OK(backend->attention(context, NULL, &a.desc));
  OK(backend->kv_append(context, NULL, &append));
  OK(backend->decode(context, NULL, &decode));
  OK(backend->merge(context, NULL, &merge));
  OK(backend->graph_end(context, NULL, &graph));
  for (int i = 0; i < 3 && graph; ++i) OK(backend->graph_launch(context, graph, NULL));
  OK(backend->copy(context, NULL, lengths, tlengths.data, sizeof lengths, TSR_COPY_DEVICE_TO_HOST));
  CHECK(all_right(&a) && all_right(&step), "the results are wrong");
  CHECK(lengths[0] == 3 + 6 && lengths[1] == 5 + 6, "lengths are %d and %d", lengths[0], lengths[1]);
  backend->graph_destroy(graph);
  backend->buffer_destroy(length_buffer), backend->buffer_destroy(rows);
  attend_free(&a), attend_free(&step);
}

static void streams(void) {
  tsr_stream *legacy = NULL, *own = NULL, *foreign = NULL, *wrapped = NULL;
  attend a;
  attend_init(&a, 1, 64, 64, 2, 2, 64);
  OK(backend->stream_synchronize(context, NULL));
  OK(backend->stream_wrap(context, NULL, &legacy));
  CHECK(backend->stream_native(context, legacy) == NULL, "NULL is the legacy default stream");
  OK(backend->attention(context, legacy, &a.desc));
  OK(backend->stream_synchronize(context, legacy));
  CHECK(backend->graph_begin(context, legacy) == TSR_UNSUPPORTED, "the legacy stream can't be recorded");
  SAYS("legacy default stream");
  OK(backend->stream_create(context, &own));
  OK(backend->stream_wrap(context, backend->stream_native(context, own), &wrapped));
  OK(backend->attention(context, wrapped, &a.desc));
  OK(backend->stream_synchronize(context, own));
  CHECK(all_right(&a), "the result is wrong");
  unsigned char host[100000];
  OK(backend->copy(context, wrapped, host, a.k.data, 64 * 2 * 64 * 2, TSR_COPY_DEVICE_TO_HOST));
  OK(backend->stream_synchronize(context, own));
  backend->stream_destroy(own); /* before the wrapper, as a caller may */
  backend->stream_destroy(wrapped), backend->stream_destroy(legacy);

  tsr_context_desc desc = {.struct_size = sizeof desc};
  tsr_context* other = NULL;
  OK(backend->context_create(&desc, &other));
  OK(backend->stream_create(other, &foreign));
  CHECK(backend->attention(context, foreign, &a.desc) == TSR_INVALID_ARGUMENT, "a stream of another context");
  SAYS("stream: is of another context");
  backend->context_destroy(other);
  backend->stream_destroy(foreign); /* after its context */
  attend_free(&a);
}

static void memory(void) {
  tsr_device_info info = {.struct_size = sizeof info};
  OK(backend->device_info(0, &info));
  tsr_buffer* buffer = NULL;
  CHECK(backend->buffer_create(context, info.memory_bytes - 4096, &buffer) == TSR_OUT_OF_MEMORY && buffer == NULL,
        "all of the memory");
  SAYS("bytes: is");
  SAYS("bytes free");
  attend a;                               /* the context goes on */
  attend_init(&a, 70000, 1, 8, 1, 1, 64); /* more heads than a grid's second dimension takes */
  OK(backend->attention(context, NULL, &a.desc));
  CHECK(all_right(&a), "the result is wrong");
  attend_free(&a);
  const tsr_tensor *outs[129], *lses[129];
  attend_init(&a, 1, 8, 8, 1, 1, 64);
  for (int i = 0; i < 129; ++i) outs[i] = &a.out, lses[i] = &a.lse;
  tsr_merge_desc merge = {.struct_size = sizeof merge, .count = 129, .outs = outs, .lses = lses, .out = &a.q};
  CHECK(backend->merge(context, NULL, &merge) == TSR_UNSUPPORTED, "129 parts");
  SAYS("count: is 129, must be at most 128");
  attend_free(&a);
}

/* An address that isn't memory: the kernel faults, and everything afterwards says what happened, and ends. */
static int lose_the_context(void) {
  attend a;
  attend_init(&a, 1, 64, 64, 2, 2, 64);
  OK(backend->stream_synchronize(context, NULL));
  a.k.data = (void*)0x10000;
  OK(backend->attention(context, NULL, &a.desc));
  CHECK(backend->stream_synchronize(context, NULL) == TSR_DEVICE_ERROR, "nothing happened");
  SAYS("stream_synchronize: cudaErrorIllegalAddress");
  SAYS("start the process again");
  CHECK(backend->attention(context, NULL, &a.desc) == TSR_DEVICE_ERROR, "it goes on");
  SAYS("was lost to an earlier cudaErrorIllegalAddress");
  tsr_context_desc desc = {.struct_size = sizeof desc};
  tsr_context* other = NULL;
  CHECK(backend->context_create(&desc, &other) == TSR_DEVICE_ERROR && other == NULL,
        "a new context of the same device");
  attend_free(&a);
  backend->context_destroy(context);
  printf("%d of %d checks failed (a lost context)\n", checks_failed, checks_passed + checks_failed);
  return checks_failed != 0;
}

/* A context on each GPU, work on all of them at the same time, nothing left current behind it. */
static void several_gpus(int count) {
  enum {
    MOST = 8
  };
  if (count < 2) {
    printf("one GPU: several of them weren't tried\n");
    return;
  }
  if (count > MOST) count = MOST;
  tsr_context* const first = context;
  tsr_context* contexts[MOST];
  attend work[MOST];
  for (int i = 0; i < count; ++i) {
    tsr_context_desc desc = {.struct_size = sizeof desc, .device = i};
    contexts[i] = NULL;
    CHECK(backend->context_create(&desc, &contexts[i]) == TSR_OK, "GPU %d: %s", i, backend->last_error(NULL));
    if (contexts[i] == NULL) exit(finish());
    context = contexts[i];
    attend_init(&work[i], 1, 2048, 2048, 8, 2, 128);
  }
  for (int turn = 0; turn < 4; ++turn) {
    for (int i = 0; i < count; ++i) OK(backend->attention(context = contexts[i], NULL, &work[i].desc));
  }
  for (int i = 0; i < count; ++i) {
    context = contexts[i];
    CHECK(all_right(&work[i]), "the result of GPU %d is wrong", i);
    attend_free(&work[i]);
    backend->context_destroy(context);
  }
  CHECK(current() == NULL, "a context is current behind the calls: %p", current());
  printf("%d GPUs at the same time\n", count);
  context = first;
}

int main(int argc, char** argv) {
  backend = load_backend(argc, argv);
  if (argc == 5) {
    context = open_context(backend, 0);
    return lose_the_context();
  }
  tsr_probe_result probe = {.struct_size = sizeof probe};
  backend->probe(&probe);
  if (probe.state != TSR_PROBE_USABLE) {
    printf("no device for cuda: %s\n", probe.reason);
    return 77;
  }
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    execl(argv[0], argv[0], argv[1], "", "", "lose", (char*)NULL);
    _exit(3);
  }
  int state = 0;
  waitpid(child, &state, 0);
  CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0, "a lost context: %#x", state);

  context = open_context(backend, 0);
  keeps_current();
  returns_at_once();
  enqueue_cost();
  records_everything();
  streams();
  memory();
  several_gpus(probe.device_count);
  backend->context_destroy(context);
  return finish();
}
