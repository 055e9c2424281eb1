/* Every function of HIP that the back end calls, made to fail at one call after the other of a program that uses the whole
 * contract: the program sees an error that names HIP's, no call crashes, none hangs, and the device goes on. */
#define _POSIX_C_SOURCE 200809L
#include "attend.h"
#include "played_child.h"

/* What has no one to tell, or an answer without it: releasing things, asking what memory is or whether an event is reached, and the
 * modes of recording. Failing it must do no harm, that is all. */
static const char* const silent[] = {"hipGetLastError",
                                     "hipFreeAsync",
                                     "hipFree",
                                     "hipHostFree",
                                     "hipStreamDestroy",
                                     "hipEventDestroy",
                                     "hipGraphDestroy",
                                     "hipGraphExecDestroy",
                                     "hipMemPoolTrimTo",
                                     "hipEventQuery",
                                     "hipDeviceGetUuid",
                                     "hipDeviceGetPCIBusId",
                                     "hipMemGetInfo",
                                     "hipThreadExchangeStreamCaptureMode",
                                     "hipUserObjectRelease",
                                     "hipHostGetDevicePointer"};

static int is_silent(const char* name) {
  for (size_t i = 0; i < sizeof silent / sizeof *silent; ++i) {
    if (strcmp(silent[i], name) == 0) return 1;
  }
  return 0;
}

/* Errors that the program saw, and whether they named HIP's. */
static int seen, named;

static int note(tsr_status status) {
  if (status == TSR_OK) return 1;
  ++seen;
  named += strstr(backend->last_error(context), "hipErrorOfStub (words of the stub)") != NULL;
  return 0;
}

static void use_everything(void) {
  tsr_probe_result probe = {.struct_size = sizeof probe};
  backend->probe(&probe);
  if (probe.state != TSR_PROBE_USABLE) {
    ++seen;
    named += strstr(probe.reason, "hipErrorOfStub (words of the stub)") != NULL;
  }
  tsr_context_desc desc = {.struct_size = sizeof desc, .device = 1}; /* not the current one */
  if (!note(backend->context_create(&desc, &context)) && !note(backend->context_create(&desc, &context))) return;
  attend a;
  if (note(attend_init(&a, 1, 16, 16, 2, 2, 64))) {
    note(backend->attention(context, NULL, &a.desc));
    tsr_stream* stream = NULL;
    tsr_event* event = NULL;
    tsr_graph* graph = NULL;
    static unsigned char large[1 << 17];
    tsr_buffer* buffer = NULL;
    note(backend->buffer_create(context, sizeof large, &buffer));
    if (note(backend->stream_create(context, &stream)) && buffer) {
      void* const data = backend->buffer_data(buffer);
      note(backend->copy(context, stream, data, large, sizeof large, TSR_COPY_HOST_TO_DEVICE));
      note(backend->copy(context, stream, large, data, sizeof large, TSR_COPY_DEVICE_TO_HOST));
      if (note(backend->event_create(context, &event)) && note(backend->event_record(context, event, stream))) {
        double milliseconds;
        note(backend->stream_wait(context, NULL, event));
        note(backend->event_synchronize(context, event));
        note(backend->event_elapsed(context, event, event, &milliseconds));
      }
      if (note(backend->graph_begin(context, stream))) {
        note(backend->attention(context, stream, &a.desc));
        note(backend->copy(context, stream, large, data, sizeof large, TSR_COPY_DEVICE_TO_HOST));
        if (note(backend->graph_end(context, stream, &graph))) note(backend->graph_launch(context, graph, stream));
      }
      /* Behind one that fails the stream still works on the buffer, which must outlive that. */
      if (!note(backend->stream_synchronize(context, stream))) backend->stream_synchronize(context, stream);
    }
    tsr_buffer* all = NULL; /* memory is short: what was freed is waited for */
    note(backend->stream_synchronize(context, NULL));
    backend->buffer_destroy(buffer);
    const tsr_status status = backend->buffer_create(context, (1u << 30) - 4096, &all);
    if (status != TSR_OUT_OF_MEMORY) note(status);
    backend->buffer_destroy(all);
    backend->graph_destroy(graph), backend->event_destroy(event), backend->stream_destroy(stream);
  }
  attend_free(&a);
  /* The device goes on: what fails does so once. */
  attend again;
  const tsr_status status = attend_init(&again, 1, 8, 8, 1, 1, 64);
  note(status);
  CHECK(status == TSR_OK || seen > 0, "%s", backend->last_error(context));
  note(backend->attention(context, NULL, &again.desc));
  note(backend->stream_synchronize(context, NULL));
  attend_free(&again);
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
  CHECK(seen == 0 || named > 0, "%d errors, and none names HIP's: %s", seen, backend->last_error(context));
  return checks_failed ? BAD : seen ? SEEN : UNSEEN;
}

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  if (argc > 5) {
    backend = load_backend(argc, argv);
    return run();
  }
  char path[] = "/tmp/tessera-errors-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) return 2;
  close(file);
  setenv("STUB_RECORD", path, 1);
  CHECK(played_child(argv, "run", NULL) == 0, "without a failure");
  unsetenv("STUB_RECORD");

  enum {
    MOST = 80
  };
  static char names[MOST][64], line[256];
  int calls[MOST] = {0}, count = 0;
  FILE* const record = fopen(path, "r");
  while (record && fgets(line, sizeof line, record)) {
    line[strcspn(line, "\n")] = '\0';
    if (line[0] == ' ' || strlen(line) > 60) continue;
    int i = 0;
    while (i < count && strcmp(names[i], line) != 0) ++i;
    if (i == MOST) break;
    if (i == count) snprintf(names[count++], sizeof names[0], "%.60s", line);
    ++calls[i];
  }
  if (record) fclose(record);
  remove(path);
  CHECK(count > 35, "only %d functions were called", count);
  for (int i = 0; i < count; ++i) {
    int told = 0;
    for (int call = 1; call <= calls[i]; ++call) {
      if (call > 20 && call < calls[i]) continue; /* the first, and the last */
      char failing[96];
      snprintf(failing, sizeof failing, "%s=999@%d", names[i], call);
      const int state = played_child(argv, "run", failing);
      const int end = WIFEXITED(state) ? WEXITSTATUS(state) : BAD;
      CHECK(end == UNSEEN || end == SEEN, "%s (of %d calls): %#x", failing, calls[i], (unsigned)state);
      told += end == SEEN;
    }
    CHECK(told > 0 || is_silent(names[i]), "%s fails, and no one is told", names[i]);
  }
  return finish();
}
