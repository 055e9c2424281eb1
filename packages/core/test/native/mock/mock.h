/* What the two halves of the mock share: stream.c does the work, mock.c is the table. */
#pragma once
#define _GNU_SOURCE
#include "tessera/tessera.h"

#include <pthread.h>
#include <stdatomic.h>

/* 1, 2 and 10: of its own table; 3 to 9: of what it answers. 0: it doesn't. */
#ifndef MOCK_LIES
#define MOCK_LIES 0
#endif

#ifdef MOCK_ASYNC
#define ASYNC 1
#else
#define ASYNC 0
#endif

extern __thread char error_text[256];
extern atomic_int contexts, buffers, graphs, events, calls, inside, fault;

tsr_status failed(tsr_status status, const char* text);
void sleep_ms(long ms);

/* A work item: what a stream holds. */
typedef struct op {
  enum {
    OP_COPY,
    OP_FILL,
    OP_ATTENTION,
    OP_EVENT
  } kind;
  void* dst;
  const void* src;
  uint64_t bytes;
  uint8_t value;
  char order[64];
  const float* q;
  int64_t q_count;
  int64_t out_count;
  void* workspace;
  uint64_t workspace_bytes;
  const volatile int32_t* cancel;
  struct op* next;
} op;

struct tsr_context {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  pthread_t thread;
  op *first, *last;
  int busy, ending, capturing;
  op *captured_first, *captured_last;
};
struct tsr_buffer {
  tsr_context* context;
  void* data;
  uint64_t bytes;
};
struct tsr_event {
  tsr_context* context;
  atomic_int done;
  double reached_ms;
};
struct tsr_graph {
  op* first;
};

/* Runs what a stream holds until the context ends. */
void* run_stream(void* context);
/* Runs `o` now, or on the stream of a device with queues, or adds it to the graph that is being captured. */
tsr_status enqueue(tsr_context* c, const op* o);
