/* Many threads, one context: the same bits as one after the other, an error text for each thread, a cancel flag that is
 * seen. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <time.h>

#include "abi.h"

enum {
  THREADS = 8,
  ROUNDS = 25
};

static const tsr_backend* backend;
static tsr_context* context;

typedef struct {
  int index;
  int bad_rounds, bad_texts;
  job j;
  float* expected;
} worker;

static void* work(void* argument) {
  worker* w = argument;
  for (int round = 0; round < ROUNDS; ++round) {
    memset(w->j.out, 0, (size_t)w->j.q_count * sizeof(float));
    if (run_attention(backend, context, w->j.desc) != TSR_OK) ++w->bad_rounds;
    if (memcmp(w->j.out, w->expected, (size_t)w->j.q_count * sizeof(float)) != 0) ++w->bad_rounds;

    tsr_attention_desc bad = w->j.desc;
    bad.softcap = -1.0f - (float)w->index;
    char word[40];
    snprintf(word, sizeof word, "softcap: is -%d,", w->index + 1);
    if (backend->supports(context, &bad) != TSR_INVALID_ARGUMENT) ++w->bad_texts;
    if (!strstr(backend->last_error(context), word)) ++w->bad_texts;
  }
  return NULL;
}

static void concurrency(void) {
  static worker workers[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; ++i) {
    worker* w = &workers[i];
    w->index = i;
    /* Prefill and decode by turns, all sizes different. */
    job_init(&w->j, (problem){1, i % 2 ? 1 : 33 + i, 300 + 7 * i, 4, 2, 32, 1}, (uint32_t)i * 100);
    CHECK(run_attention(backend, context, w->j.desc) == TSR_OK, "%s", backend->last_error(context));
    w->expected = malloc((size_t)w->j.q_count * sizeof(float));
    memcpy(w->expected, w->j.out, (size_t)w->j.q_count * sizeof(float));
  }
  for (int i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, work, &workers[i]);
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; ++i) {
    CHECK(workers[i].bad_rounds == 0, "thread %d: %d rounds differ or failed", i, workers[i].bad_rounds);
    CHECK(workers[i].bad_texts == 0, "thread %d: %d texts of other threads", i, workers[i].bad_texts);
    free(workers[i].expected);
    job_free(&workers[i].j);
  }
}

/* The number of threads is no part of the result, nor is the context. */
static void other_thread_counts(void) {
  job j;
  job_init(&j, (problem){2, 1, 999, 8, 2, 64, 1}, 77);
  j.desc.num_splits = 3;
  float* expected = malloc((size_t)j.q_count * sizeof(float));
  for (int threads = 1; threads <= 7; threads += 2) {
    tsr_context* other = open_context(backend, threads);
    CHECK(run_attention(backend, other, j.desc) == TSR_OK, "%s", backend->last_error(other));
    if (threads == 1) memcpy(expected, j.out, (size_t)j.q_count * sizeof(float));
    CHECK(memcmp(expected, j.out, (size_t)j.q_count * sizeof(float)) == 0, "%d threads give other bits than 1",
          threads);
    backend->context_destroy(other);
  }
  free(expected);
  job_free(&j);
}

/* Texts belong to a context, too: a failure with one leaves the other's alone. */
static void texts_of_contexts(void) {
  tsr_context* other = open_context(backend, 1);
  CHECK(backend->last_error(other)[0] == '\0', "a new context has a text: %s", backend->last_error(other));
  tsr_kernel_info info = {.struct_size = sizeof info};
  CHECK(backend->kernel_info(other, 999, &info) == TSR_INVALID_ARGUMENT, "kernel 999");
  CHECK(backend->fill(context, NULL, NULL, 0, 9) == TSR_INVALID_ARGUMENT, "a NULL destination");
  CHECK(strstr(backend->last_error(other), "index: is 999"), "%s", backend->last_error(other));
  CHECK(strstr(backend->last_error(context), "9 bytes"), "%s", backend->last_error(context));
  backend->context_destroy(other);
}

static int32_t cancel;

static void* cancel_soon(void* argument) {
  (void)argument;
  nanosleep(&(struct timespec){.tv_nsec = 30 * 1000 * 1000}, NULL);
  __atomic_store_n(&cancel, 1, __ATOMIC_RELAXED);
  return NULL;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void cancellation(void) {
  job j;
  job_init(&j, (problem){1, 4096, 4096, 16, 2, 64, 0}, 9); /* far more work than 30 ms */
  j.desc.cancel = &cancel;
  cancel = 1;
  memset(j.out, 0, 64);
  CHECK(run_attention(backend, context, j.desc) == TSR_ABORTED, "set before the call");
  CHECK(strstr(backend->last_error(context), "cancel"), "%s", backend->last_error(context));
  cancel = 0;
  pthread_t thread;
  pthread_create(&thread, NULL, cancel_soon, NULL);
  const double start = seconds();
  const tsr_status status = run_attention(backend, context, j.desc);
  const double took = seconds() - start;
  pthread_join(thread, NULL);
  CHECK(status == TSR_ABORTED, "set during the call: status %d after %.3f s", status, took);
  printf("cancelled after %.0f ms\n", took * 1e3);
  cancel = 0;
  job_free(&j);
  job_init(&j, (problem){1, 8, 8, 2, 2, 8, 0}, 9);
  j.desc.cancel = &cancel;
  CHECK(run_attention(backend, context, j.desc) == TSR_OK, "the context goes on: %s", backend->last_error(context));
  job_free(&j);
}

int main(int argc, char** argv) {
  backend = open_backend(argc, argv);
  context = open_context(backend, 4);
  concurrency();
  other_thread_counts();
  texts_of_contexts();
  if (host_memory)
    cancellation();
  else
    skip_checks(1, "cancel: a device with queues doesn't look at it");
  backend->context_destroy(context);
  return finish();
}
