/* The mock's work: what an order means, and the thread that plays a device with queues. */
#include "mock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

__thread char error_text[256];
atomic_int contexts, buffers, graphs, events, calls, inside, fault;

tsr_status failed(tsr_status status, const char* text) {
  snprintf(error_text, sizeof error_text, "%s", text);
  return status;
}

void sleep_ms(long ms) {
  struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static double now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static tsr_status execute(op* o) {
  switch (o->kind) {
    case OP_COPY:
      memcpy(o->dst, o->src, o->bytes);
      return TSR_OK;
    case OP_FILL:
      memset(o->dst, o->value, o->bytes);
      return TSR_OK;
    case OP_EVENT:
      ((tsr_event*)o->dst)->reached_ms = now_ms();
      atomic_store(&((tsr_event*)o->dst)->done, 1);
      return TSR_OK;
    case OP_ATTENTION:
      break;
  }
  int number = atomic_fetch_add(&calls, 1) + 1;
  if (o->workspace_bytes) memset(o->workspace, 0xff, o->workspace_bytes);
  const char* colon = strchr(o->order, ':');
  long amount = colon ? atol(colon + 1) : 0;
  int stubborn = !strncmp(o->order, "stubborn:", 9);
  if (stubborn || !strncmp(o->order, "sleep:", 6)) {
    atomic_fetch_add(&inside, 1);
    float sum = 0;
    for (long ms = 0; ms < amount; ms++) {
      sleep_ms(1);
      for (int64_t i = 0; i < o->q_count; i++) sum += o->q[i]; /* still readable? */
      if (!stubborn && o->cancel && *o->cancel) {
        atomic_fetch_sub(&inside, 1);
        return failed(TSR_ABORTED, "told to stop");
      }
    }
    if (sum == 12345.678f) error_text[0] = 0;
    atomic_fetch_sub(&inside, 1);
  }
  if (!strncmp(o->order, "fail:", 5)) return failed((tsr_status)amount, "as ordered");
  if (!strcmp(o->order, "fault")) {
    atomic_store(&fault, 1);
    return failed(TSR_DEVICE_ERROR, "the mock device broke");
  }
  if (o->out_count >= 2) {
    float sum = 0;
    for (int64_t i = 0; i < o->q_count; i++) sum += o->q[i];
    ((float*)o->dst)[0] = (float)number;
    ((float*)o->dst)[1] = sum;
  }
  return TSR_OK;
}

void* run_stream(void* argument) {
  tsr_context* c = argument;
  pthread_mutex_lock(&c->mutex);
  for (;;) {
    while (!c->first && !c->ending) pthread_cond_wait(&c->changed, &c->mutex);
    if (!c->first) break;
    op* o = c->first;
    c->first = o->next;
    if (!c->first) c->last = NULL;
    c->busy = 1;
    pthread_mutex_unlock(&c->mutex);
    execute(o);
    free(o);
    pthread_mutex_lock(&c->mutex);
    c->busy = 0;
    pthread_cond_broadcast(&c->changed);
  }
  pthread_mutex_unlock(&c->mutex);
  return NULL;
}

tsr_status enqueue(tsr_context* c, const op* o) {
  if (!ASYNC && !c->capturing) {
    op now = *o;
    return execute(&now);
  }
  op* copy = malloc(sizeof *copy);
  *copy = *o;
  copy->next = NULL;
  pthread_mutex_lock(&c->mutex);
  op** first = c->capturing ? &c->captured_first : &c->first;
  op** last = c->capturing ? &c->captured_last : &c->last;
  if (*last)
    (*last)->next = copy;
  else
    *first = copy;
  *last = copy;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->mutex);
  return TSR_OK;
}
