// Streams and events of a device that computes in the call: the order of calls is the order of work.
#include "api.h"
#include "context.h"

namespace tsr::cpu {
namespace {

Verdict no_graphs() {
  return unsupported(
      "graphs: the CPU computes in the call and has nothing to record (TSR_DEVICE_GRAPHS is not among its caps)");
}

}  // namespace

tsr_status stream_create(tsr_context* context, tsr_stream** stream) { return stream_wrap(context, nullptr, stream); }

tsr_status stream_wrap(tsr_context* context, void* native, tsr_stream** stream) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(stream);
    *stream = new tsr_stream{native};
    return {};
  });
}

void stream_destroy(tsr_stream* stream) { delete stream; }

void* stream_native(tsr_context*, tsr_stream*) { return nullptr; }

tsr_status stream_synchronize(tsr_context* context, tsr_stream*) {
  return enter(context, [] { return Verdict{}; });
}

tsr_status event_create(tsr_context* context, tsr_event** event) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(event);
    *event = new tsr_event;
    return {};
  });
}

void event_destroy(tsr_event* event) { delete event; }

tsr_status event_record(tsr_context* context, tsr_event* event, tsr_stream*) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(event);
    event->when = std::chrono::steady_clock::now();
    event->recorded = true;
    return {};
  });
}

tsr_status event_synchronize(tsr_context* context, tsr_event* event) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(event);
    return {};
  });
}

tsr_status event_elapsed(tsr_context* context, tsr_event* start, tsr_event* stop, double* milliseconds) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(start);
    TSR_NOT_NULL(stop);
    TSR_NOT_NULL(milliseconds);
    if (!start->recorded) return invalid("start: was never recorded, must be an event of event_record");
    if (!stop->recorded) return invalid("stop: was never recorded, must be an event of event_record");
    *milliseconds = std::chrono::duration<double, std::milli>(stop->when - start->when).count();
    return {};
  });
}

tsr_status stream_wait(tsr_context* context, tsr_stream*, tsr_event* event) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(event);
    return {};
  });
}

tsr_status graph_begin(tsr_context* context, tsr_stream*) { return enter(context, no_graphs); }
tsr_status graph_end(tsr_context* context, tsr_stream*, tsr_graph** graph) {
  if (graph != nullptr) *graph = nullptr;
  return enter(context, no_graphs);
}
tsr_status graph_launch(tsr_context* context, tsr_graph*, tsr_stream*) { return enter(context, no_graphs); }
void graph_destroy(tsr_graph*) {}

}  // namespace tsr::cpu
