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
  CHECK(create(1, 0) == TSR_DEVICE_UNAVAILABLE, "device 1");
  SAYS(NULL, "device: is 1");
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
  CHECK(backend->context_create(NULL, &context) == TSR_INVALID_ARGUMENT, "a NULL description");
  tsr_context_desc desc = {.struct_size = sizeof desc};
  CHECK(backend->context_create(&desc, NULL) == TSR_INVALID_ARGUMENT, "a NULL result");
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
    unsigned char* data = backend->buffer_data(buffer);
    CHECK((uintptr_t)data % 64 == 0 && data != NULL, "%p", (void*)data);
    CHECK(backend->buffer_bytes(buffer) == sizes[i], "%llu", (unsigned long long)backend->buffer_bytes(buffer));
    CHECK(backend->fill(context, NULL, data, 0x5a, sizes[i]) == TSR_OK, "%s", backend->last_error(context));
    if (sizes[i] > 0) CHECK(data[0] == 0x5a && data[sizes[i] - 1] == 0x5a, "not filled");
    backend->buffer_destroy(buffer);
  }
  char from[4] = "abc", to[4] = "";
  CHECK(backend->copy(context, NULL, to, from, 4, TSR_COPY_HOST_TO_DEVICE) == TSR_OK, "%s",
        backend->last_error(context));
  CHECK(strcmp(to, "abc") == 0, "%s", to);
  CHECK(backend->copy(context, NULL, to, from, 4, 9) == TSR_INVALID_ARGUMENT, "an unknown kind");
  SAYS(context, "kind: is 9");
  CHECK(backend->copy(context, NULL, to, NULL, 4, TSR_COPY_HOST_TO_DEVICE) == TSR_INVALID_ARGUMENT, "a NULL source");
  CHECK(backend->copy(context, NULL, NULL, NULL, 0, TSR_COPY_HOST_TO_DEVICE) == TSR_OK, "nothing to copy");
  CHECK(backend->buffer_wrap(context, from, 4, &buffer) == TSR_OK, "%s", backend->last_error(context));
  CHECK(backend->buffer_data(buffer) == from && backend->buffer_bytes(buffer) == 4, "not the caller's memory");
  backend->buffer_destroy(buffer);
  CHECK(strcmp(from, "abc") == 0, "a borrowed buffer was freed");
}

static void streams_and_events(tsr_context* context) {
  tsr_stream *stream = NULL, *wrapped = NULL;
  CHECK(backend->stream_create(context, &stream) == TSR_OK && stream, "%s", backend->last_error(context));
  CHECK(backend->stream_wrap(context, NULL, &wrapped) == TSR_OK && wrapped, "%s", backend->last_error(context));
  CHECK(backend->stream_native(context, stream) == NULL, "a CPU has no native stream");
  tsr_event *start = NULL, *stop = NULL;
  CHECK(backend->event_create(context, &start) == TSR_OK && backend->event_create(context, &stop) == TSR_OK, "events");
  double ms = -1;
  CHECK(backend->event_elapsed(context, start, stop, &ms) == TSR_INVALID_ARGUMENT, "never recorded");
  SAYS(context, "start");
  CHECK(backend->event_record(context, start, stream) == TSR_OK && backend->event_record(context, stop, NULL) == TSR_OK,
        "record");
  CHECK(backend->stream_wait(context, stream, stop) == TSR_OK && backend->event_synchronize(context, stop) == TSR_OK,
        "wait");
  CHECK(backend->stream_synchronize(context, stream) == TSR_OK && backend->stream_synchronize(context, NULL) == TSR_OK,
        "wait");
  CHECK(backend->event_elapsed(context, start, stop, &ms) == TSR_OK && ms >= 0 && ms < 1000, "%f ms", ms);
  tsr_graph* graph = (tsr_graph*)1;
  CHECK(backend->graph_begin(context, stream) == TSR_UNSUPPORTED, "graphs");
  SAYS(context, "TSR_DEVICE_GRAPHS");
  CHECK(backend->graph_end(context, stream, &graph) == TSR_UNSUPPORTED && graph == NULL, "graphs");
  CHECK(backend->graph_launch(context, NULL, stream) == TSR_UNSUPPORTED, "graphs");
  backend->event_destroy(start), backend->event_destroy(stop);
  backend->stream_destroy(stream), backend->stream_destroy(wrapped);
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
#else
static int busy;
static tsr_context* shared_context;

static void* keep_busy(void* argument) {
  job* j = argument;
  while (__atomic_load_n(&busy, __ATOMIC_RELAXED)) run_attention(backend, shared_context, j->desc);
  return NULL;
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
  /* Forked in the middle of other threads' work: whatever lock is held at that moment stays held in the child. */
  job other;
  job_init(&other, (problem){1, 64, 64, 4, 2, 16, 1}, 2);
  shared_context = context;
  __atomic_store_n(&busy, 1, __ATOMIC_RELAXED);
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, keep_busy, i ? &other : &j);
  int stuck = 0;
  for (int round = 0; round < 40; ++round) {
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
    stuck += !(WIFEXITED(state) && WEXITSTATUS(state) == 7);
    if (stuck) break;
  }
  CHECK(stuck == 0, "a child forked in the middle of work is stuck: %#x", state);
  __atomic_store_n(&busy, 0, __ATOMIC_RELAXED);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  job_free(&other);
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
#endif

int main(int argc, char** argv) {
  backend = open_backend(argc, argv);
  contexts();
  refusals();
  nulls();
  tsr_context* context = open_context(backend, 3);
  buffers(context);
  streams_and_events(context);
  forks_and_exits(context);
  backend->context_destroy(context);
  return finish();
}
