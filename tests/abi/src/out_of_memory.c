/* Memory runs out at the n-th allocation of a program that uses the whole contract, for each n until it gets through: every
 * call says TSR_OUT_OF_MEMORY or does its work, nothing is lost, and with memory again the same context computes the same.
 * This program's malloc stands before the C library's. */
#define _GNU_SOURCE
#include "abi.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
int main(void) {
  printf("malloc is the sanitizer's here, or not glibc's\n");
  return 77;
}
#else

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
extern void __libc_free(void*);

/* Allocations until one fails; 0: none does. */
static long left;
static long failures, alive;

static int fails(void) {
  if (__atomic_load_n(&left, __ATOMIC_RELAXED) <= 0) return 0;
  if (__atomic_sub_fetch(&left, 1, __ATOMIC_RELAXED) != 0) return 0;
  __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
  return 1;
}
static void* counted(void* memory) {
  if (memory) __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED);
  return memory;
}
#pragma GCC visibility push(default) /* or libraries don't find them */
void* malloc(size_t bytes) { return fails() ? NULL : counted(__libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) { return fails() ? NULL : counted(__libc_calloc(count, bytes)); }
void* realloc(void* old, size_t bytes) {
  if (fails()) return NULL;
  if (old) return __libc_realloc(old, bytes);
  return counted(__libc_realloc(old, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return fails() ? NULL : counted(__libc_memalign(alignment, bytes));
}
void free(void* memory) {
  if (memory) __atomic_sub_fetch(&alive, 1, __ATOMIC_RELAXED);
  __libc_free(memory);
}
#pragma GCC visibility pop

static const tsr_backend* backend;
static tsr_context* context;
static job j, step;
static float cache_k[2 * 8 * 2 * 16], cache_v[2 * 8 * 2 * 16];
static int32_t lengths[2];
static unsigned char workspace[1 << 20] __attribute__((aligned(64)));
static long refused;

/* Whether a call did its work; else it said that memory ran out. */
static int did(tsr_status status, const char* what) {
  if (status == TSR_OK) return 1;
  ++refused;
  CHECK(status == TSR_OUT_OF_MEMORY, "%s: status %d: %s", what, status, backend->last_error(context));
  CHECK(backend->last_error(context)[0] != '\0', "%s: no text", what);
  return 0;
}
#define DID(call) did(backend->call, #call)

static void use_everything(void) {
  tsr_context_desc desc = {.struct_size = sizeof desc, .threads = 3};
  context = NULL;
  if (!did(backend->context_create(&desc, &context), "context_create")) return;
  tsr_attention_desc d = j.desc;
  d.workspace = workspace, d.workspace_bytes = sizeof workspace;
  uint64_t bytes;
  tsr_rejection rejections[8];
  tsr_explanation explanation = {.struct_size = sizeof explanation, .rejections = rejections, .rejection_capacity = 8};
  DID(supports(context, &d));
  DID(explain(context, &d, &explanation));
  DID(attention_workspace(context, &d, &bytes));
  DID(attention(context, NULL, &d)); /* starts the threads */
  d.kernel = "none";
  const tsr_status unknown = backend->supports(context, &d);
  if (unknown != TSR_INVALID_ARGUMENT) did(unknown, "a text of an error");

  tsr_tensor k = tensor(TSR_F32, j.k, 2, 3, 2, 16), v = tensor(TSR_F32, j.v, 2, 3, 2, 16);
  tsr_tensor ck = tensor(TSR_F32, cache_k, 2, 8, 2, 16), cv = tensor(TSR_F32, cache_v, 2, 8, 2, 16);
  tsr_tensor tl = tensor(TSR_I32, lengths, 2, -1, -1, -1);
  tsr_append_desc append = {.struct_size = sizeof append, .k = &k, .v = &v, .cache_k = &ck, .cache_v = &cv};
  append.lengths = &tl;
  DID(kv_append(context, NULL, &append));
  tsr_decode_desc decode = {.struct_size = sizeof decode, .append = &append, .attention = &step.desc};
  tsr_attention_desc over = step.desc;
  over.k = &ck, over.v = &cv, over.workspace = workspace, over.workspace_bytes = sizeof workspace;
  decode.attention = &over;
  if (DID(decode_workspace(context, &decode, &bytes))) DID(decode(context, NULL, &decode));
  const tsr_tensor *outs[] = {&j.tout, &j.tout}, *lses[] = {&j.tlse, &j.tlse};
  tsr_tensor out = tensor(TSR_F32, step.out, 2, 5, 4, 16);
  tsr_merge_desc merge = {.struct_size = sizeof merge, .count = 2, .outs = outs, .lses = lses, .out = &out};
  DID(merge(context, NULL, &merge));

  tsr_buffer* buffer = NULL;
  tsr_stream* stream = NULL;
  tsr_event* event = NULL;
  if (DID(buffer_create(context, 4096, &buffer))) {
    DID(fill(context, NULL, backend->buffer_data(buffer), 1, 4096));
    tsr_buffer* wrapped = NULL;
    if (DID(buffer_wrap(context, backend->buffer_data(buffer), 4096, &wrapped))) backend->buffer_destroy(wrapped);
  }
  if (DID(stream_create(context, &stream)) && DID(event_create(context, &event))) {
    DID(event_record(context, event, stream));
    DID(stream_wait(context, NULL, event));
    DID(event_synchronize(context, event));
  }
  backend->event_destroy(event), backend->stream_destroy(stream), backend->buffer_destroy(buffer);
}

int main(int argc, char** argv) {
  backend = load_backend(argc, argv);
  if (strcmp(backend->name, "cpu") != 0) {
    printf("the host's memory isn't this device's\n");
    return 77;
  }
  job_init(&j, (problem){2, 5, 7, 4, 2, 16, 1}, 3);
  job_init(&step, (problem){2, 5, 8, 4, 2, 16, 0}, 9);
  use_everything(); /* what is made once stays */
  CHECK(refused == 0, "%s", backend->last_error(context));
  float* expected = malloc((size_t)j.q_count * sizeof(float));
  memcpy(expected, j.out, (size_t)j.q_count * sizeof(float));
  backend->context_destroy(context);

  long n = 1, unseen = 0;
  for (;; ++n) {
    const long before = __atomic_load_n(&alive, __ATOMIC_RELAXED);
    failures = refused = 0;
    __atomic_store_n(&left, n, __ATOMIC_RELAXED);
    use_everything();
    __atomic_store_n(&left, 0, __ATOMIC_RELAXED);
    if (failures > 0 && refused == 0) ++unseen;
    if (context) { /* the same context goes on */
      memset(j.out, 0, (size_t)j.q_count * sizeof(float));
      CHECK(run_attention(backend, context, j.desc) == TSR_OK, "n %ld: %s", n, backend->last_error(context));
      CHECK(memcmp(expected, j.out, (size_t)j.q_count * sizeof(float)) == 0, "n %ld: other bits", n);
      backend->context_destroy(context);
    }
    const long after = __atomic_load_n(&alive, __ATOMIC_RELAXED);
    CHECK(after <= before, "n %ld: %ld allocations lost", n, after - before);
    if (failures == 0 || checks_failed > 20) break;
  }
  printf("%ld allocations failed in turn, %ld of them without a word: work was done by fewer threads, say\n", n - 1,
         unseen);
  CHECK(n > 10, "only %ld allocations", n);
  free(expected);
  job_free(&j), job_free(&step);
  return finish();
}
#endif
