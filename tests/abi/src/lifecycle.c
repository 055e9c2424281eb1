/* Objects: made and destroyed a thousand times with no memory lost, refused when they make no sense, NULL tolerated. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi.h"

static const tsr_backend* backend;

static long resident_pages(void) {
  long size = 0, resident = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL) return 0;
  if (fscanf(file, "%ld %ld", &size, &resident) != 2) resident = 0;
  fclose(file);
  return resident;
}

static void contexts(void) {
  job j;
  job_init(&j, (problem){1, 64, 64, 4, 2, 16, 1}, 1);
  long before = 0;
  for (int round = 0; round < 1000; ++round) {
    if (round == 100) before = resident_pages();
    tsr_context* context = open_context(backend, 3);
    if (round % 4 == 0 && run_attention(backend, context, j.desc) != TSR_OK) { /* starts the threads */
      CHECK(0, "%s", backend->last_error(context));
    }
    backend->context_destroy(context);
  }
  const long grown = (resident_pages() - before) * sysconf(_SC_PAGESIZE);
  /* A sanitizer keeps freed memory for a while, an emulator keeps something for every thread that ever was. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (getenv("TESSERA_EMULATED") == NULL) CHECK(grown < 2 << 20, "900 contexts later: %ld bytes more", grown);
#endif
  printf("900 contexts: %ld bytes\n", grown);
  job_free(&j);
}

static tsr_status create(int32_t device, int32_t threads) {
  tsr_context_desc desc = {.struct_size = sizeof desc, .device = device, .threads = threads};
  tsr_context* context = (tsr_context*)1;
  const tsr_status status = backend->context_create(&desc, &context);
  if (status == TSR_OK)
    backend->context_destroy(context);
  else
    CHECK(context == NULL, "a context in spite of status %d", status);
  return status;
}

#define SAYS(context, word) CHECK(strstr(backend->last_error(context), word), "%s", backend->last_error(context))

static void refusals(void) {
  CHECK(create(1000, 0) == TSR_DEVICE_UNAVAILABLE, "device 1000");
  SAYS(NULL, "device: is 1000");
  tsr_context* none;
  CHECK(backend->context_create(NULL, &none) == TSR_INVALID_ARGUMENT, "a NULL description");
  tsr_context_desc desc = {.struct_size = sizeof desc};
  CHECK(backend->context_create(&desc, NULL) == TSR_INVALID_ARGUMENT, "a NULL result");
}

static void refusals_of_a_cpu(void) {
  CHECK(create(0, -1) == TSR_INVALID_ARGUMENT, "-1 threads");
  SAYS(NULL, "threads: is -1");
  CHECK(create(0, 100000) == TSR_INVALID_ARGUMENT, "100000 threads");
  SAYS(NULL, "1024");
  static const char* const bad[] = {"0", "-3", "two", "4x", "99999"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    setenv("TESSERA_THREADS", bad[i], 1);
    CHECK(create(0, 0) == TSR_INVALID_ARGUMENT, "TESSERA_THREADS=%s", bad[i]);
    SAYS(NULL, "TESSERA_THREADS");
    SAYS(NULL, bad[i]);
    CHECK(create(0, 2) == TSR_OK, "threads are given: TESSERA_THREADS doesn't matter");
  }
  setenv("TESSERA_THREADS", "3", 1);
  CHECK(create(0, 0) == TSR_OK, "%s", backend->last_error(NULL));
  unsetenv("TESSERA_THREADS");
  setenv("TESSERA_CPU_ISA", "mmx", 1);
  CHECK(create(0, 0) == TSR_INVALID_ARGUMENT, "TESSERA_CPU_ISA=mmx");
  SAYS(NULL, "TESSERA_CPU_ISA: is \"mmx\"");
  SAYS(NULL, "portable");

  setenv("TESSERA_CPU_ISA", "portable", 1);
  tsr_context* context = open_context(backend, 1);
  unsetenv("TESSERA_CPU_ISA");
  for (int32_t i = 0; i < backend->kernel_count(context); ++i) {
    tsr_kernel_info info = {.struct_size = sizeof info};
    CHECK(backend->kernel_info(context, i, &info) == TSR_OK, "%s", backend->last_error(context));
    CHECK(!info.usable == !strstr(info.name, "portable"), "%s is usable: %d", info.name, info.usable);
    CHECK(info.usable || info.reason[0], "%s: no reason", info.name);
  }
  backend->context_destroy(context);
}

static void buffers(tsr_context* context) {
  static const uint64_t absurd[] = {UINT64_MAX, UINT64_MAX - 63, INT64_MAX, 1ull << 60, 1ull << 50};
  tsr_buffer* buffer = NULL;
  for (size_t i = 0; i < sizeof absurd / sizeof *absurd; ++i) {
    CHECK(backend->buffer_create(context, absurd[i], &buffer) == TSR_OUT_OF_MEMORY, "%llu bytes",
          (unsigned long long)absurd[i]);
    CHECK(buffer == NULL, "a buffer in spite of it");
    SAYS(context, "bytes: is");
  }
  static const uint64_t sizes[] = {0, 1, 63, 64, 65, 1000003};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    CHECK(backend->buffer_create(context, sizes[i], &buffer) == TSR_OK, "%s", backend->last_error(context));
    unsigned char *data = backend->buffer_data(buffer), *bytes = malloc((size_t)sizes[i] + 1);
    CHECK((uintptr_t)data % (host_memory ? 64 : 256) == 0 && data != NULL, "%p", (void*)data);
    CHECK(backend->buffer_bytes(buffer) == sizes[i], "%llu", (unsigned long long)backend->buffer_bytes(buffer));
    CHECK(backend->fill(context, NULL, data, 0x5a, sizes[i]) == TSR_OK, "%s", backend->last_error(context));
    CHECK(backend->copy(context, NULL, bytes, data, sizes[i], TSR_COPY_DEVICE_TO_HOST) == TSR_OK &&
              backend->stream_synchronize(context, NULL) == TSR_OK,
          "%s", backend->last_error(context));
    if (sizes[i] > 0) CHECK(bytes[0] == 0x5a && bytes[sizes[i] - 1] == 0x5a, "not filled");
    free(bytes);
    backend->buffer_destroy(buffer);
  }
  char from[4] = "abc", to[4] = "";
  CHECK(backend->buffer_create(context, 4, &buffer) == TSR_OK, "%s", backend->last_error(context));
  char* data = backend->buffer_data(buffer);
  CHECK(backend->copy(context, NULL, data, from, 4, TSR_COPY_HOST_TO_DEVICE) == TSR_OK &&
            backend->copy(context, NULL, to, data, 4, TSR_COPY_DEVICE_TO_HOST) == TSR_OK &&
            backend->stream_synchronize(context, NULL) == TSR_OK,
        "%s", backend->last_error(context));
  CHECK(strcmp(to, "abc") == 0, "%s", to);
  CHECK(backend->copy(context, NULL, to, from, 4, 9) == TSR_INVALID_ARGUMENT, "an unknown kind");
  SAYS(context, "kind: is 9");
  CHECK(backend->copy(context, NULL, data, NULL, 4, TSR_COPY_HOST_TO_DEVICE) == TSR_INVALID_ARGUMENT, "a NULL source");
  CHECK(backend->copy(context, NULL, NULL, NULL, 0, TSR_COPY_HOST_TO_DEVICE) == TSR_OK, "nothing to copy");
  tsr_buffer* borrowed = NULL;
  CHECK(backend->buffer_wrap(context, data, 4, &borrowed) == TSR_OK, "%s", backend->last_error(context));
  CHECK(backend->buffer_data(borrowed) == data && backend->buffer_bytes(borrowed) == 4, "not the caller's memory");
  backend->buffer_destroy(borrowed);
  memset(to, 0, sizeof to);
  CHECK(backend->copy(context, NULL, to, data, 4, TSR_COPY_DEVICE_TO_HOST) == TSR_OK &&
            backend->stream_synchronize(context, NULL) == TSR_OK && strcmp(to, "abc") == 0,
        "a borrowed buffer was freed");
  backend->buffer_destroy(buffer);
}

/* Copies of all sizes around those at which a back end may go another way, in both directions, several under way at a
 * time; freed buffers' memory comes back with the next one's contents, not with a late copy's. */
static void copies(tsr_context* context) {
  static const size_t sizes[] = {1, 4095, 65536, 65537, 4 << 20, (4 << 20) + 1, 20000001};
  enum {
    N = sizeof sizes / sizeof *sizes
  };
  unsigned char *from[N], *to[N];
  tsr_buffer* buffers[N];
  for (int i = 0; i < N; ++i) {
    from[i] = malloc(sizes[i]), to[i] = malloc(sizes[i]);
    for (size_t n = 0; n < sizes[i]; ++n) from[i][n] = (unsigned char)(n * 2654435761u >> 13 ^ (size_t)i);
    CHECK(backend->buffer_create(context, sizes[i], &buffers[i]) == TSR_OK, "%s", backend->last_error(context));
    CHECK(backend->copy(context, NULL, backend->buffer_data(buffers[i]), from[i], sizes[i], TSR_COPY_HOST_TO_DEVICE) ==
              TSR_OK,
          "%s", backend->last_error(context));
  }
  for (int i = 0; i < N; ++i)
    CHECK(backend->copy(context, NULL, to[i], backend->buffer_data(buffers[i]), sizes[i], TSR_COPY_DEVICE_TO_HOST) ==
              TSR_OK,
          "%s", backend->last_error(context));
  for (int i = 0; i < N; ++i) backend->buffer_destroy(buffers[i]); /* the device may still be copying */
  for (int i = 0; i < N; ++i) {
    tsr_buffer* next = NULL;
    CHECK(backend->buffer_create(context, sizes[i], &next) == TSR_OK, "%s", backend->last_error(context));
    CHECK(backend->fill(context, NULL, backend->buffer_data(next), 0, sizes[i]) == TSR_OK, "%s",
          backend->last_error(context));
    backend->buffer_destroy(next);
  }
  CHECK(backend->stream_synchronize(context, NULL) == TSR_OK, "%s", backend->last_error(context));
  for (int i = 0; i < N; ++i) {
    CHECK(memcmp(from[i], to[i], sizes[i]) == 0, "%zu bytes came back otherwise", sizes[i]);
    free(from[i]), free(to[i]);
  }
}

/* Recorded work: not done while it is recorded, done at each launch with what its memory then holds. */
static void graphs(tsr_context* context) {
  tsr_graph* graph = (tsr_graph*)1;
  CHECK(backend->graph_end(context, NULL, &graph) == TSR_INVALID_ARGUMENT && graph == NULL, "nothing is recorded");
  SAYS(context, "is not being recorded");
  tsr_buffer *source = NULL, *target = NULL;
  unsigned char host[100], back[100], seen[100];
  CHECK(backend->buffer_create(context, 100, &source) == TSR_OK &&
            backend->buffer_create(context, 100, &target) == TSR_OK,
        "%s", backend->last_error(context));
  void *from = backend->buffer_data(source), *to = backend->buffer_data(target);
  CHECK(backend->fill(context, NULL, to, 1, 100) == TSR_OK && backend->stream_synchronize(context, NULL) == TSR_OK,
        "%s", backend->last_error(context));
  memset(host, 2, sizeof host), memset(back, 0, sizeof back);
  CHECK(backend->graph_begin(context, NULL) == TSR_OK, "%s", backend->last_error(context));
  CHECK(backend->graph_begin(context, NULL) == TSR_INVALID_ARGUMENT, "recorded twice");
  CHECK(backend->copy(context, NULL, from, host, 100, TSR_COPY_HOST_TO_DEVICE) == TSR_OK, "%s",
        backend->last_error(context));
  CHECK(backend->copy(context, NULL, to, from, 100, TSR_COPY_DEVICE_TO_DEVICE) == TSR_OK, "%s",
        backend->last_error(context));
  CHECK(backend->copy(context, NULL, back, to, 100, TSR_COPY_DEVICE_TO_HOST) == TSR_OK, "%s",
        backend->last_error(context));
  tsr_buffer* meanwhile = NULL; /* recording forbids nothing else */
  CHECK(backend->buffer_create(context, 1 << 20, &meanwhile) == TSR_OK, "%s", backend->last_error(context));
  backend->buffer_destroy(meanwhile);
  CHECK(backend->graph_end(context, NULL, &graph) == TSR_OK && graph != NULL, "%s", backend->last_error(context));
  CHECK(backend->copy(context, NULL, seen, to, 100, TSR_COPY_DEVICE_TO_HOST) == TSR_OK &&
            backend->stream_synchronize(context, NULL) == TSR_OK && seen[50] == 1,
        "it was done while it was recorded");
  for (int value = 2; value < 5 && graph; ++value) {
    memset(host, value, sizeof host);
    CHECK(backend->graph_launch(context, graph, NULL) == TSR_OK && backend->stream_synchronize(context, NULL) == TSR_OK,
          "%s", backend->last_error(context));
    CHECK(back[0] == value && back[99] == value, "%d, not %d", back[0], value);
  }
  backend->graph_destroy(graph);
  backend->buffer_destroy(source), backend->buffer_destroy(target);
}

static void streams_and_events(tsr_context* context) {
  tsr_stream *stream = NULL, *wrapped = NULL;
  CHECK(backend->stream_create(context, &stream) == TSR_OK && stream, "%s", backend->last_error(context));
  CHECK(backend->stream_wrap(context, NULL, &wrapped) == TSR_OK && wrapped, "%s", backend->last_error(context));
  if (host_memory)
    CHECK(backend->stream_native(context, stream) == NULL, "a CPU has no native stream");
  else
    CHECK(backend->stream_native(context, stream) != backend->stream_native(context, NULL), "no stream of its own");
  tsr_event *start = NULL, *stop = NULL;
  CHECK(backend->event_create(context, &start) == TSR_OK && backend->event_create(context, &stop) == TSR_OK, "events");
  double ms = -1;
  CHECK(backend->event_elapsed(context, start, stop, &ms) == TSR_INVALID_ARGUMENT, "never recorded");
  SAYS(context, "start");
  CHECK(
      backend->event_record(context, start, stream) == TSR_OK && backend->event_record(context, stop, stream) == TSR_OK,
      "record");
  CHECK(backend->stream_wait(context, NULL, stop) == TSR_OK && backend->event_synchronize(context, stop) == TSR_OK,
        "wait");
  CHECK(backend->stream_synchronize(context, stream) == TSR_OK && backend->stream_synchronize(context, NULL) == TSR_OK,
        "wait");
  CHECK(backend->event_elapsed(context, start, stop, &ms) == TSR_OK && ms >= 0 && ms < 1000, "%f ms", ms);
  backend->event_destroy(start), backend->event_destroy(stop);
  backend->stream_destroy(stream), backend->stream_destroy(wrapped);
}

static void no_graphs(tsr_context* context) {
  tsr_graph* graph = (tsr_graph*)1;
  CHECK(backend->graph_begin(context, NULL) == TSR_UNSUPPORTED, "graphs");
  SAYS(context, "TSR_DEVICE_GRAPHS");
  CHECK(backend->graph_end(context, NULL, &graph) == TSR_UNSUPPORTED && graph == NULL, "graphs");
  CHECK(backend->graph_launch(context, NULL, NULL) == TSR_UNSUPPORTED, "graphs");
}

static void nulls(void) {
  backend->context_destroy(NULL);
  backend->stream_destroy(NULL);
  backend->event_destroy(NULL);
  backend->buffer_destroy(NULL);
  backend->graph_destroy(NULL);
  CHECK(backend->buffer_data(NULL) == NULL && backend->buffer_bytes(NULL) == 0, "of no buffer");
  CHECK(backend->kernel_count(NULL) == 0, "of no context");
  CHECK(backend->stream_synchronize(NULL, NULL) == TSR_INVALID_ARGUMENT, "of no context");
  CHECK(backend->probe(NULL) == TSR_INVALID_ARGUMENT, "into nothing");
}

#if defined(__SANITIZE_THREAD__) /* whose runtime can't fork a process with threads */
static void forks_and_exits(tsr_context* context) { (void)context; }
static void forks_of_a_gpu(tsr_context* context) { (void)context; }
static void fork_before_use(int argc, char** argv) { (void)argc, (void)argv; }
#else
static int busy;
static tsr_context* shared_context;

static void* keep_busy(void* argument) {
  job* j = argument;
  while (__atomic_load_n(&busy, __ATOMIC_RELAXED)) run_attention(backend, shared_context, j->desc);
  return NULL;
}

/* Forked in the middle of other threads' work: whatever lock is held at that moment stays held in the child. */
static void forks_amid_work(tsr_context* context, job* j) {
#if defined( \
    __SANITIZE_ADDRESS__) /* glibc's malloc is whole in a child, this sanitizer's keeps its lock: what is tested allocates */
  (void)context, (void)j;
  skip_checks(1, "forked in the middle of work: the sanitizer's malloc may stay locked in a child");
#else
  job other;
  job_init(&other, (problem){1, 64, 64, 4, 2, 16, 1}, 2);
  shared_context = context;
  __atomic_store_n(&busy, 1, __ATOMIC_RELAXED);
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, keep_busy, i ? &other : j);
  int state = 0, good = 1;
  for (int round = 0; round < 40 && good; ++round) {
    const pid_t forked = fork();
    if (forked == 0) {
      alarm(20);
      tsr_attention_desc desc = other.desc;
      float out[64 * 4 * 16], lse[64 * 4];
      tsr_tensor tout = other.tout, tlse = other.tlse;
      tout.data = out, tlse.data = lse, desc.out = &tout, desc.lse = &tlse;
      _exit(run_attention(backend, context, desc) == TSR_OK ? 7 : 1);
    }
    waitpid(forked, &state, 0);
    good = WIFEXITED(state) && WEXITSTATUS(state) == 7;
  }
  CHECK(good, "a child forked in the middle of work is stuck: %#x", state);
  __atomic_store_n(&busy, 0, __ATOMIC_RELAXED);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  job_free(&other);
#endif
}

/* A child of a process whose threads run: it has none of them, and still works and ends. And a process may end while its
 * threads are busy or asleep, with no context destroyed. */
static void forks_and_exits(tsr_context* context) {
  job j;
  job_init(&j, (problem){1, 64, 64, 4, 2, 16, 1}, 1);
  CHECK(run_attention(backend, context, j.desc) == TSR_OK, "%s", backend->last_error(context));
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const tsr_status status = run_attention(backend, context, j.desc);
    backend->context_destroy(context);
    _exit(status == TSR_OK ? 7 : 1);
  }
  int state = 0;
  waitpid(child, &state, 0);
  CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 7, "the child's state is %#x", state);
  forks_amid_work(context, &j);
  fflush(stdout); /* or the next child says it, too */
  const pid_t leaver = fork();
  if (leaver == 0) {
    static tsr_context* own; /* static: a leak checker still reaches it */
    own = open_context(backend, 4);
    freopen("/dev/null", "w", stdout);
    exit(run_attention(backend, own, j.desc) == TSR_OK ? 9 : 1);
  }
  waitpid(leaver, &state, 0);
  CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 9, "exit with a live context: %#x", state);
  job_free(&j);
}

typedef struct {
  tsr_stream* stream;
  tsr_event* event;
  tsr_buffer* buffer;
} objects;

/* What the child of a process that had used a GPU is told; it uses and destroys the parent's objects. */
static void refused_in_a_child(tsr_context* context, const objects* o, const job* j) {
  char host[4] = "";
#define REFUSED(call)                                                  \
  do {                                                                 \
    CHECK((call) == TSR_DEVICE_ERROR, "a forked child isn't refused"); \
    SAYS(context, "was forked from one");                              \
  } while (0)
  REFUSED(backend->attention(context, NULL, &j->desc));
  REFUSED(backend->supports(context, &j->desc));
  REFUSED(backend->copy(context, NULL, host, backend->buffer_data(o->buffer), 4, TSR_COPY_DEVICE_TO_HOST));
  REFUSED(backend->event_record(context, o->event, o->stream));
  REFUSED(backend->event_synchronize(context, o->event));
  REFUSED(backend->stream_synchronize(context, o->stream));
  tsr_buffer* buffer = NULL;
  REFUSED(backend->buffer_create(context, 64, &buffer));
  CHECK(create(0, 1) == TSR_DEVICE_UNAVAILABLE, "a context in a forked child");
  SAYS(NULL, "was forked from one");
  tsr_probe_result probe = {.struct_size = sizeof probe};
  CHECK(backend->probe(&probe) == TSR_OK && probe.state == TSR_PROBE_ERROR && strstr(probe.reason, "was forked"), "%s",
        probe.reason);
  backend->event_destroy(o->event), backend->stream_destroy(o->stream), backend->buffer_destroy(o->buffer);
  backend->context_destroy(context);
}

/* A GPU's driver doesn't survive a fork. Children are forked while two threads are in it, with whatever locks they hold. */
static void forks_of_a_gpu(tsr_context* context) {
  job jobs[2];
  pthread_t threads[2];
  objects o = {0};
  CHECK(backend->stream_create(context, &o.stream) == TSR_OK && backend->event_create(context, &o.event) == TSR_OK &&
            backend->buffer_create(context, 64, &o.buffer) == TSR_OK,
        "%s", backend->last_error(context));
  shared_context = context;
  __atomic_store_n(&busy, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < 2; ++i) {
    job_init(&jobs[i], (problem){1, 64, 64, 4, 2, 16, 1}, (unsigned)i + 1);
    pthread_create(&threads[i], NULL, keep_busy, &jobs[i]);
  }
  int state = 0, good = 1;
  for (int round = 0; round < 20 && good; ++round) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      checks_failed = 0;
      refused_in_a_child(context, &o, &jobs[0]);
      fflush(stdout);
      _exit(checks_failed ? 1 : 7);
    }
    waitpid(child, &state, 0);
    good = WIFEXITED(state) && WEXITSTATUS(state) == 7;
  }
  CHECK(good, "a forked child's state is %#x", state);
  __atomic_store_n(&busy, 0, __ATOMIC_RELAXED);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  CHECK(backend->event_record(context, o.event, o.stream) == TSR_OK &&
            backend->stream_synchronize(context, o.stream) == TSR_OK &&
            run_attention(backend, context, jobs[0].desc) == TSR_OK,
        "the parent's: %s", backend->last_error(context));
  backend->event_destroy(o.event), backend->stream_destroy(o.stream), backend->buffer_destroy(o.buffer);
  for (int i = 0; i < 2; ++i) job_free(&jobs[i]);
}
/* A child forked before the device is used may use it itself. */
static void fork_before_use(int argc, char** argv) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    backend = open_backend(argc, argv); /* ends a program that has no device */
    backend->context_destroy(open_context(backend, 1));
    _exit(7);
  }
  int state = 0;
  waitpid(child, &state, 0);
  CHECK(WIFEXITED(state) && (WEXITSTATUS(state) == 7 || WEXITSTATUS(state) == 77), "forked before use: %#x", state);
}
#endif

int main(int argc, char** argv) {
  fork_before_use(argc, argv);
  backend = open_backend(argc, argv);
  contexts();
  refusals();
  if (strcmp(backend->name, "cpu") == 0) refusals_of_a_cpu();
  nulls();
  tsr_context* context = open_context(backend, 3);
  buffers(context);
  streams_and_events(context);
  copies(context);
  tsr_device_info device = {.struct_size = sizeof device};
  CHECK(backend->device_info(0, &device) == TSR_OK, "%s", backend->last_error(NULL));
  device.caps& TSR_DEVICE_GRAPHS ? graphs(context) : no_graphs(context);
  if (host_memory)
    forks_and_exits(context);
  else
    forks_of_a_gpu(context);
  backend->context_destroy(context);
  return finish();
}
