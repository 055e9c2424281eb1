/* Every function of a vendor's libraries that a back end calls, made to fail at one call after another of a program that uses the
 * whole contract: the program sees an error that has the vendor's words, no call crashes, none hangs, what was taken is given
 * back, and the device goes on: the next attention is right.
 * What includes it says what is the vendor's, and calls break_everything() with it. */
#ifndef TESSERA_TESTS_ERRORS_H
#define TESSERA_TESTS_ERRORS_H

#include <sys/wait.h>
#include <unistd.h>

#include "attend.h"

typedef struct {
  /* What an error's text has of the vendor's. */
  const char* words;
  /* Functions whose failing has no one to tell, or an answer without it: it must do no harm, that is all. */
  const char* const* silent;
  /* Those that free something, or without which nothing can be freed: what they fail to is lost. */
  const char* const* freeing;
  /* At least so many functions are called. */
  int least;
  /* Starts argv[0] again, with this in STUB_FAIL (or NULL) and argv[5] = "run" or, without memory pools, "run-without-pools". */
  int (*child)(char** argv, const char* what, const char* failing);
} vendor;

static const vendor* of;

static int is_among(const char* const* names, const char* name) {
  for (; *names != NULL; ++names) {
    if (strcmp(*names, name) == 0) return 1;
  }
  return 0;
}

/* Errors that the program saw, and whether they had the vendor's words. */
static int seen, named;

static int note(tsr_status status) {
  if (status == TSR_OK) return 1;
  ++seen;
  named += strstr(backend->last_error(context), of->words) != NULL;
  return 0;
}

static void cache_and_merge(attend* a) {
  tsr_buffer *cache[2] = {NULL, NULL}, *count = NULL;
  const uint64_t bytes = 2 * 16 * 2 * 64;
  if (note(backend->buffer_create(context, bytes, &cache[0])) &&
      note(backend->buffer_create(context, bytes, &cache[1])) && note(backend->buffer_create(context, 4, &count)) &&
      note(backend->fill(context, NULL, backend->buffer_data(count), 0, 4))) {
    tsr_tensor k = a->k, v = a->v, lengths = tensor(TSR_I32, backend->buffer_data(count), 1, -1, -1, -1);
    k.data = backend->buffer_data(cache[0]), v.data = backend->buffer_data(cache[1]);
    const tsr_append_desc append = {
        .struct_size = sizeof append, .k = &a->k, .v = &a->v, .cache_k = &k, .cache_v = &v, .lengths = &lengths};
    note(backend->kv_append(context, NULL, &append));
    const tsr_tensor *outs[] = {&a->out}, *lses[] = {&a->lse};
    const tsr_merge_desc merge = {.struct_size = sizeof merge, .count = 1, .outs = outs, .lses = lses, .out = &a->out};
    note(backend->merge(context, NULL, &merge));
  }
  backend->buffer_destroy(cache[0]), backend->buffer_destroy(cache[1]), backend->buffer_destroy(count);
}

static void streams_and_graphs(attend* a, tsr_buffer* buffer, unsigned char* host, uint64_t bytes) {
  tsr_stream* stream = NULL;
  tsr_event* event = NULL;
  tsr_graph* graph = NULL;
  if (note(backend->stream_create(context, &stream)) && buffer) {
    void* const data = backend->buffer_data(buffer);
    note(backend->copy(context, stream, data, host, bytes, TSR_COPY_HOST_TO_DEVICE));
    note(backend->copy(context, stream, host, data, bytes, TSR_COPY_DEVICE_TO_HOST));
    if (note(backend->event_create(context, &event)) && note(backend->event_record(context, event, stream))) {
      double milliseconds;
      note(backend->stream_wait(context, NULL, event));
      note(backend->event_synchronize(context, event));
      note(backend->event_elapsed(context, event, event, &milliseconds));
    }
    if (note(backend->graph_begin(context, stream))) {
      note(backend->attention(context, stream, &a->desc));
      note(backend->copy(context, stream, host, data, bytes, TSR_COPY_DEVICE_TO_HOST));
      if (note(backend->graph_end(context, stream, &graph))) note(backend->graph_launch(context, graph, stream));
    }
    /* Behind one that fails the stream still works on the buffer, which must outlive that. */
    if (!note(backend->stream_synchronize(context, stream))) backend->stream_synchronize(context, stream);
  }
  backend->graph_destroy(graph), backend->event_destroy(event), backend->stream_destroy(stream);
}

/* All of v is one number, so out is. */
static void attend_again(void) {
  const int before = seen;
  attend again;
  const tsr_status status = attend_init(&again, 1, 8, 8, 1, 1, 64);
  static unsigned char out[8 * 64 * 2];
  if (note(status) && note(backend->attention(context, NULL, &again.desc)) &&
      note(backend->copy(context, NULL, out, again.out.data, sizeof out, TSR_COPY_DEVICE_TO_HOST)) &&
      note(backend->stream_synchronize(context, NULL))) {
    for (size_t i = 0; i < sizeof out; ++i) CHECK(out[i] == 0x2c, "byte %zu of out is %#x", i, out[i]);
  }
  CHECK(before == 0 || seen == before, "what failed once fails again: %s", backend->last_error(context));
  attend_free(&again);
}

static void use_everything(void) {
  tsr_probe_result probe = {.struct_size = sizeof probe};
  backend->probe(&probe);
  if (probe.state != TSR_PROBE_USABLE) {
    ++seen;
    named += strstr(probe.reason, of->words) != NULL;
  }
  tsr_context_desc desc = {.struct_size = sizeof desc, .device = 1}; /* not the current one */
  if (!note(backend->context_create(&desc, &context)))
    CHECK(backend->context_create(&desc, &context) == TSR_OK, "%s", backend->last_error(NULL));
  if (context == NULL) return;
  attend a;
  if (note(attend_init(&a, 1, 16, 16, 2, 2, 64))) {
    note(backend->attention(context, NULL, &a.desc));
    cache_and_merge(&a);
    static unsigned char large[1 << 17];
    tsr_buffer* buffer = NULL;
    note(backend->buffer_create(context, sizeof large, &buffer));
    streams_and_graphs(&a, buffer, large, sizeof large);
    tsr_buffer* all = NULL; /* memory is short: what was freed is waited for */
    note(backend->stream_synchronize(context, NULL));
    backend->buffer_destroy(buffer);
    const tsr_status status = backend->buffer_create(context, (1u << 30) - 4096, &all);
    if (status != TSR_OUT_OF_MEMORY) note(status);
    backend->buffer_destroy(all);
  }
  attend_free(&a);
  attend_again();
  backend->context_destroy(context);
  if (getenv("STUB_RECORD") != NULL) return; /* nothing fails from here on */
  /* What couldn't be given back at once, since nobody could say whether it was in use, is by the next context. */
  CHECK(backend->context_create(&desc, &context) == TSR_OK, "%s", backend->last_error(NULL));
  backend->context_destroy(context);
}

/* What the process of one failure ends with. */
enum {
  UNSEEN = 0,
  BAD = 1,
  SEEN = 4
};

static int run(void) {
  use_everything();
  CHECK(seen == 0 || named > 0, "%d errors, and none has the words of the device: %s", seen,
        backend->last_error(context));
  return checks_failed ? BAD : seen ? SEEN : UNSEEN;
}

enum {
  FUNCTIONS = 80,
  LINE = 128
};
typedef struct {
  char names[FUNCTIONS][LINE];
  int calls[FUNCTIONS], count;
} calls;

/* The lines of a file that a stub wrote, and how often each is there; those that begin with a blank are remarks. */
static void count_lines(const char* path, calls* c) {
  static char line[4 * LINE];
  memset(c, 0, sizeof *c);
  FILE* const file = fopen(path, "r");
  while (file && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = '\0';
    if (line[0] == ' ' || strlen(line) >= LINE) continue;
    int i = 0;
    while (i < c->count && strcmp(c->names[i], line) != 0) ++i;
    if (i == FUNCTIONS) break;
    if (i == c->count) strcpy(c->names[c->count++], line);
    ++c->calls[i];
  }
  if (file) fclose(file);
  remove(path);
}

static void fail_each(char** argv, const char* what, const char* path, calls* done) {
  static calls all, left, now;
  setenv("STUB_RECORD", path, 1);
  CHECK(of->child(argv, what, NULL) == 0, "%s, without a failure", what);
  unsetenv("STUB_RECORD");
  count_lines(path, &all);
  setenv("STUB_LEFT", path, 1);
  CHECK(of->child(argv, what, NULL) == 0, "%s, without a failure", what);
  count_lines(path, &left);
  CHECK(left.count == 1, "%d lines of what is left", left.count);
  for (int i = 0; i < all.count; ++i) {
    const char* const name = all.names[i];
    int told = 0, known = 0;
    for (int n = 0; n < done->count; ++n) known |= strcmp(done->names[n], name) == 0;
    if (known) continue; /* on the way with pools */
    for (int call = 1; call <= all.calls[i]; ++call) {
      if (call > 20 && call < all.calls[i]) continue; /* the first, and the last */
      char failing[LINE + 32];
      snprintf(failing, sizeof failing, "%s=999@%d", name, call);
      const int state = of->child(argv, what, failing);
      const int end = WIFEXITED(state) ? WEXITSTATUS(state) : BAD;
      CHECK(end == UNSEEN || end == SEEN, "%s (of %d calls): %#x", failing, all.calls[i], (unsigned)state);
      told += end == SEEN;
      count_lines(path, &now);
      CHECK(now.count == 1 && (is_among(of->freeing, name) || strcmp(now.names[0], left.names[0]) == 0),
            "%s: %s are left, without a failure %s", failing, now.names[0], left.names[0]);
    }
    CHECK(told > 0 || is_among(of->silent, name), "%s fails, and no one is told", name);
  }
  unsetenv("STUB_LEFT");
  if (done->count == 0) *done = all;
}

static int break_everything(int argc, char** argv, const vendor* device) {
  of = device;
  if (argc < 5) return 2;
  if (argc > 5) {
    backend = load_backend(argc, argv);
    return run();
  }
  char path[] = "/tmp/tessera-errors-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) return 2;
  close(file);
  static calls done;
  fail_each(argv, "run", path, &done);
  CHECK(done.count >= of->least, "only %d functions were called", done.count);
  fail_each(argv, "run-without-pools", path, &done);
  return finish();
}

#endif
