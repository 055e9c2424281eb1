/* What a device with queues and memory of its own shows: calls return at once and keep the caller's current device; every call
 * can be recorded; streams of the caller; errors, and what is left after them. On a runtime without a GPU (tests/runtime), two
 * devices of it; given a library alone, on the GPU that there is. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "played/attend.h"
#include "played_child.h"

#define OK(call) CHECK((call) == TSR_OK, "%s", backend->last_error(context))
#define SAYS(word) CHECK(strstr(backend->last_error(context), word), "%s", backend->last_error(context))

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
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

/* The runtime's own word on what is current. */
static int (*get_device)(int* device);
static int (*set_device)(int device);
static int (*get_device_count)(int* count);

static int current(void) {
  int device = -1;
  get_device(&device);
  return device;
}

static void open_runtime(void) {
  void* runtime = NULL;
  static const char* const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};
  for (int i = 0; i < 4 && runtime == NULL; ++i) runtime = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (runtime == NULL) exit(1);
  *(void**)&get_device = dlsym(runtime, "hipGetDevice");
  *(void**)&set_device = dlsym(runtime, "hipSetDevice");
  *(void**)&get_device_count = dlsym(runtime, "hipGetDeviceCount");
}

static void one_of_everything(void) {
  attend a;
  OK(attend_init(&a, 1, 64, 64, 2, 2, 64));
  OK(backend->attention(context, NULL, &a.desc));
  tsr_stream* stream = NULL;
  tsr_event* event = NULL;
  OK(backend->stream_create(context, &stream));
  OK(backend->event_create(context, &event));
  OK(backend->event_record(context, event, stream));
  OK(backend->event_synchronize(context, event));
  OK(backend->stream_wait(context, stream, event));
  double milliseconds = -1;
  OK(backend->event_elapsed(context, event, event, &milliseconds));
  CHECK(milliseconds == 0, "%f ms from an event to itself", milliseconds);
  backend->event_destroy(event), backend->stream_destroy(stream);
  CHECK(all_right(&a), "the result is wrong");
  attend_free(&a);
}

/* Contexts of each device, whatever is current, and that is current behind the calls. */
static void several_devices(void) {
  tsr_context* const first = context;
  int devices = 0;
  get_device_count(&devices);
  for (int32_t device = 0; device < devices; ++device) {
    for (int before = 0; before < devices; ++before) {
      set_device(before);
      tsr_context_desc desc = {.struct_size = sizeof desc, .device = device};
      OK(backend->context_create(&desc, &context));
      CHECK(current() == before, "device %d is current, not %d", current(), before);
      one_of_everything();
      CHECK(current() == before, "device %d is current, not %d", current(), before);
      tsr_event *foreign = NULL, *own = NULL;
      if (device > 0) {
        OK(backend->event_create(first, &foreign));
        OK(backend->event_create(context, &own));
        CHECK(backend->event_record(context, foreign, NULL) == TSR_INVALID_ARGUMENT, "an event of another device");
        SAYS("event: is of device 0, must be of device 1");
        backend->event_destroy(foreign), backend->event_destroy(own);
      }
      backend->context_destroy(context);
      CHECK(current() == before, "device %d is current, not %d", current(), before);
    }
  }
  set_device(0);
  context = first;
}

/* Work, a copy to pageable memory behind it: both calls return long before. */
static void returns_at_once(int played) {
  attend a;
  OK(attend_init(&a, 1, played ? 192 : 16384, played ? 192 : 16384, played ? 4 : 32, played ? 4 : 32, 128));
  OK(backend->attention(context, NULL, &a.desc)); /* loads the kernel */
  const uint64_t bytes = backend->buffer_bytes(a.buffers[3]);
  unsigned char *out = calloc(1, bytes), *in = malloc(bytes);
  memset(in, 0x2c, bytes);
  unsigned char warm[70000];
  OK(backend->copy(context, NULL, warm, a.out.data, sizeof warm, TSR_COPY_DEVICE_TO_HOST)); /* page-locks memory */
  OK(backend->stream_synchronize(context, NULL));
  const double start = seconds();
  for (int i = 0; i < (played ? 2 : 20); ++i) OK(backend->attention(context, NULL, &a.desc));
  OK(backend->copy(context, NULL, a.q.data, in, bytes, TSR_COPY_HOST_TO_DEVICE));
  OK(backend->copy(context, NULL, out, a.out.data, bytes, TSR_COPY_DEVICE_TO_HOST));
  unsigned char few[64], back[64] = {0};
  memset(few, 7, sizeof few);
  OK(backend->copy(context, NULL, a.k.data, few, sizeof few, TSR_COPY_HOST_TO_DEVICE)); /* taken at once */
  memset(few, 9, sizeof few);
  const double enqueued = seconds() - start;
  const int early = out[bytes - 1] != 0;
  OK(backend->stream_synchronize(context, NULL));
  const double all = seconds() - start;
  printf("attentions and three copies: enqueued in %.2f ms, done after %.0f ms\n", enqueued * 1e3, all * 1e3);
  CHECK(enqueued < all / 4 && !early, "%f of %f seconds", enqueued, all);
  CHECK(out[0] == out[2] && out[bytes - 1] == 0x2c && all_right(&a), "the result is wrong");
  OK(backend->copy(context, NULL, back, a.k.data, sizeof back, TSR_COPY_DEVICE_TO_HOST));
  OK(backend->stream_synchronize(context, NULL));
  CHECK(back[0] == 7 && back[63] == 7, "a small copy took %d, from after the call", back[0]);
  free(out), free(in);
  attend_free(&a);
}

/* attention, append, decode, merge and copies into one graph: none of them allocates or waits. */
static void records_everything(void) {
  attend a, step;
  OK(attend_init(&a, 2, 128, 128, 4, 2, 64));
  OK(attend_init(&step, 2, 1, 256, 4, 2, 64));
  int32_t starts[2] = {3, 5}, lengths[2] = {0, 0};
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
  CHECK(backend->graph_begin(context, NULL) == TSR_INVALID_ARGUMENT, "twice");
  OK(backend->attention(context, NULL, &a.desc));
  OK(backend->kv_append(context, NULL, &append));
  OK(backend->decode(context, NULL, &decode));
  OK(backend->merge(context, NULL, &merge));
  OK(backend->copy(context, NULL, lengths, tlengths.data, sizeof lengths, TSR_COPY_DEVICE_TO_HOST));
  OK(backend->graph_end(context, NULL, &graph));
  CHECK(lengths[0] == 0, "recording runs nothing");
  for (int i = 0; i < 3 && graph; ++i) OK(backend->graph_launch(context, graph, NULL));
  CHECK(all_right(&a) && all_right(&step), "the results are wrong");
  CHECK(lengths[0] == 3 + 6 && lengths[1] == 5 + 6, "lengths are %d and %d", lengths[0], lengths[1]);
  backend->graph_destroy(graph);
  CHECK(backend->graph_end(context, NULL, &graph) == TSR_INVALID_ARGUMENT && graph == NULL, "of no recording");
  backend->buffer_destroy(length_buffer), backend->buffer_destroy(rows);
  attend_free(&a), attend_free(&step);
}

static void streams(void) {
  tsr_stream *legacy = NULL, *own = NULL, *foreign = NULL, *wrapped = NULL;
  attend a;
  OK(attend_init(&a, 1, 64, 64, 2, 2, 64));
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
  tsr_buffer *buffer = NULL, *small = NULL;
  OK(backend->buffer_create(context, 4096, &small));
  CHECK(backend->buffer_create(context, info.memory_bytes, &buffer) == TSR_OUT_OF_MEMORY && !buffer, "all of it");
  SAYS("bytes: is");
  SAYS("bytes free");
  CHECK(backend->buffer_create(context, info.memory_bytes + 1, &buffer) == TSR_OUT_OF_MEMORY && !buffer, "and more");
  backend->buffer_destroy(small);
  attend a; /* the context goes on */
  OK(attend_init(&a, 1, 8, 8, 1, 1, 64));
  OK(backend->attention(context, NULL, &a.desc));
  CHECK(all_right(&a), "the result is wrong");
  const tsr_tensor *outs[129], *lses[129];
  for (int i = 0; i < 129; ++i) outs[i] = &a.out, lses[i] = &a.lse;
  tsr_merge_desc merge = {.struct_size = sizeof merge, .count = 129, .outs = outs, .lses = lses, .out = &a.q};
  CHECK(backend->merge(context, NULL, &merge) == TSR_UNSUPPORTED, "129 parts");
  SAYS("count: is 129, must be at most 128");
  attend_free(&a);

  tsr_tensor q = tensor(TSR_F16, NULL, 1 << 20, 1 << 20, 1, 64); /* more threads than 32 bits count */
  tsr_attention_desc huge = {.struct_size = sizeof huge, .q = &q, .k = &q, .v = &q, .out = &q};
  CHECK(backend->supports(context, &huge) == TSR_UNSUPPORTED, "2^40 rows");
  SAYS("HIP launches at once");
}

static void explains(void) {
  attend a;
  OK(attend_init(&a, 1, 64, 64, 2, 2, 64));
  tsr_explanation e = {.struct_size = sizeof e};
  OK(backend->explain(context, &a.desc, &e));
  CHECK(strstr(e.notes, "never run on AMD hardware") && strstr(e.notes, " code object on gfx"), "%s", e.notes);
  setenv("HSA_OVERRIDE_GFX_VERSION", "9.4.2", 1);
  OK(backend->explain(context, &a.desc, &e));
  CHECK(strstr(e.notes, "HSA_OVERRIDE_GFX_VERSION is 9.4.2"), "%s", e.notes);
  unsetenv("HSA_OVERRIDE_GFX_VERSION");
  attend_free(&a);
}

/* An address that isn't memory: the kernel faults, and everything afterwards says what happened, and ends. */
static int lose_the_device(void) {
  attend a;
  OK(attend_init(&a, 1, 64, 64, 2, 2, 64));
  OK(backend->stream_synchronize(context, NULL));
  a.k.data = (void*)0x10000;
  OK(backend->attention(context, NULL, &a.desc));
  CHECK(backend->stream_synchronize(context, NULL) == TSR_DEVICE_ERROR, "nothing happened");
  SAYS("stream_synchronize: hipErrorIllegalAddress");
  SAYS("start the process again");
  CHECK(backend->attention(context, NULL, &a.desc) == TSR_DEVICE_ERROR, "it goes on");
  SAYS("was lost to an earlier hipErrorIllegalAddress");
  tsr_context_desc desc = {.struct_size = sizeof desc};
  tsr_context* other = NULL;
  CHECK(backend->context_create(&desc, &other) == TSR_DEVICE_ERROR && !other, "a new context of the same device");
  attend_free(&a);
  backend->context_destroy(context);
  return 0;
}

static int run(const char* what, int played) {
  open_runtime();
  context = open_context(backend, 0);
  if (strcmp(what, "lose") == 0) {
    lose_the_device();
  } else {
    one_of_everything();
    several_devices();
    returns_at_once(played);
    records_everything();
    streams();
    memory();
    explains();
    backend->context_destroy(context);
  }
  printf("%d of %d checks failed (%s)\n", checks_failed, checks_passed + checks_failed, what);
  return checks_failed != 0;
}

int main(int argc, char** argv) {
  if (argc == 5) {
    static const char* const whats[] = {"all", "lose"};
    for (int i = 0; i < 2; ++i) {
      const int state = played_child(argv, whats[i], NULL);
      CHECK(state == 0, "%s: %#x", whats[i], (unsigned)state);
    }
    setenv("STUB_NO_POOLS", "1", 1);
    const int state = played_child(argv, "all", NULL);
    CHECK(state == 0, "without memory pools: %#x", (unsigned)state);
    return finish();
  }
  backend = load_backend(argc, argv);
  tsr_probe_result probe = {.struct_size = sizeof probe};
  backend->probe(&probe);
  if (probe.state != TSR_PROBE_USABLE) {
    printf("no device for hip: %s\n", probe.reason);
    return 77;
  }
  return run(argc > 5 ? argv[5] : "all", argc > 5);
}
