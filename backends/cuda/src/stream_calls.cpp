#include <memory>

#include "api.h"
#include "context.h"

namespace tsr::cuda::host {
namespace {

Verdict check_event(const tsr_context& context, const tsr_event* event) {
  if (event->gpu == context.gpu) return {};
  return invalid("event: is of device ", event->gpu->index(), ", must be of device ", context.gpu->index());
}

// For what has no context of its own: destroying.
template <class F>
void with_device(Gpu& gpu, F&& body) {
  const Current current(gpu);
  if (current.error() != CUDA_SUCCESS) return;
  body();
  cudaGetLastError();
}

}  // namespace

tsr_status stream_create(tsr_context* context, tsr_stream** stream) {
  return enter_device(context, [&]() -> Verdict {
    TSR_NOT_NULL(stream);
    *stream = nullptr;
    std::unique_ptr<tsr_stream> made(new tsr_stream{context->key, context->gpu, nullptr, true});
    TSR_TRY(context->gpu->check(cudaStreamCreateWithFlags(&made->native, cudaStreamNonBlocking),
                                "stream_create: cudaStreamCreateWithFlags"));
    *stream = made.release();
    return {};
  });
}

tsr_status stream_wrap(tsr_context* context, void* native, tsr_stream** stream) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(stream);
    *stream = new tsr_stream{context->key, context->gpu, static_cast<cudaStream_t>(native), false};
    return {};
  });
}

void stream_destroy(tsr_stream* stream) {
  const std::unique_ptr<tsr_stream> dying(stream);
  if (dying == nullptr) return;
  with_device(*dying->gpu, [&] {
    dying->staging.release();
    if (dying->owned) cudaStreamDestroy(dying->native);
  });
}

void* stream_native(tsr_context* context, tsr_stream* stream) {
  if (stream != nullptr) return stream->native;
  return context != nullptr ? context->own.native : nullptr;
}

tsr_status stream_synchronize(tsr_context* context, tsr_stream* stream) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    return context->gpu->check(cudaStreamSynchronize(on.native), "stream_synchronize");
  });
}

tsr_status event_create(tsr_context* context, tsr_event** event) {
  return enter_device(context, [&]() -> Verdict {
    TSR_NOT_NULL(event);
    *event = nullptr;
    std::unique_ptr<tsr_event> made(new tsr_event{context->gpu, nullptr, {false}});
    // Blocking: a thread that waits for it sleeps.
    TSR_TRY(context->gpu->check(cudaEventCreateWithFlags(&made->native, cudaEventBlockingSync), "event_create"));
    *event = made.release();
    return {};
  });
}

void event_destroy(tsr_event* event) {
  const std::unique_ptr<tsr_event> dying(event);
  if (dying != nullptr) with_device(*dying->gpu, [&] { cudaEventDestroy(dying->native); });
}

tsr_status event_record(tsr_context* context, tsr_event* event, tsr_stream* stream) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    TSR_NOT_NULL(event);
    TSR_TRY(check_event(*context, event));
    TSR_TRY(context->gpu->check(cudaEventRecord(event->native, on.native), "event_record"));
    event->recorded.store(true, std::memory_order_relaxed);
    return {};
  });
}

tsr_status event_synchronize(tsr_context* context, tsr_event* event) {
  return enter_device(context, [&]() -> Verdict {
    TSR_NOT_NULL(event);
    TSR_TRY(check_event(*context, event));
    return context->gpu->check(cudaEventSynchronize(event->native), "event_synchronize");
  });
}

// Waits for both: a time that isn't there yet is of no use to anyone.
tsr_status event_elapsed(tsr_context* context, tsr_event* start, tsr_event* stop, double* milliseconds) {
  return enter_device(context, [&]() -> Verdict {
    TSR_NOT_NULL(start);
    TSR_NOT_NULL(stop);
    TSR_NOT_NULL(milliseconds);
    TSR_TRY(check_event(*context, start));
    TSR_TRY(check_event(*context, stop));
    if (!start->recorded) return invalid("start: was never recorded, must be an event of event_record");
    if (!stop->recorded) return invalid("stop: was never recorded, must be an event of event_record");
    TSR_TRY(context->gpu->check(cudaEventSynchronize(start->native), "event_elapsed"));
    TSR_TRY(context->gpu->check(cudaEventSynchronize(stop->native), "event_elapsed"));
    float elapsed = 0;
    TSR_TRY(context->gpu->check(cudaEventElapsedTime(&elapsed, start->native, stop->native), "event_elapsed"));
    *milliseconds = elapsed;
    return {};
  });
}

tsr_status stream_wait(tsr_context* context, tsr_stream* stream, tsr_event* event) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    TSR_NOT_NULL(event);
    TSR_TRY(check_event(*context, event));
    return context->gpu->check(cudaStreamWaitEvent(on.native, event->native, 0), "stream_wait");
  });
}

// Relaxed: a capture is of one stream, and must not forbid other threads, or this one, to allocate meanwhile.
tsr_status graph_begin(tsr_context* context, tsr_stream* stream) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    if (on.native == nullptr || on.native == cudaStreamLegacy) {
      return unsupported("stream: is CUDA's legacy default stream, which can't be recorded; give another");
    }
    bool capturing = false;
    TSR_TRY(context->gpu->check_capturing(on.native, &capturing));
    if (capturing) return invalid("stream: is being recorded already, must be ended first");
    return context->gpu->check(cudaStreamBeginCapture(on.native, cudaStreamCaptureModeRelaxed), "graph_begin");
  });
}

tsr_status graph_end(tsr_context* context, tsr_stream* stream, tsr_graph** graph) {
  if (graph != nullptr) *graph = nullptr;
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    TSR_NOT_NULL(graph);
    bool capturing = false;
    if (on.native != nullptr) TSR_TRY(context->gpu->check_capturing(on.native, &capturing));
    if (!capturing) {
      return invalid("stream: is not being recorded, must be one of graph_begin");
    }
    auto made = std::make_unique<tsr_graph>(tsr_graph{context->gpu, nullptr});
    cudaGraph_t recorded = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(on.native, &recorded);
    if (ended != cudaSuccess || recorded == nullptr) {
      return context->gpu->check(ended == cudaSuccess ? cudaErrorStreamCaptureInvalidated : ended, "graph_end");
    }
    const cudaError_t instantiated = cudaGraphInstantiate(&made->native, recorded, 0);
    cudaGraphDestroy(recorded);
    TSR_TRY(context->gpu->check(instantiated, "graph_end: cudaGraphInstantiate"));
    *graph = made.release();
    return {};
  });
}

tsr_status graph_launch(tsr_context* context, tsr_graph* graph, tsr_stream* stream) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    TSR_NOT_NULL(graph);
    if (graph->gpu != context->gpu) {
      return invalid("graph: is of device ", graph->gpu->index(), ", must be of device ", context->gpu->index());
    }
    return context->gpu->check(cudaGraphLaunch(graph->native, on.native), "graph_launch");
  });
}

void graph_destroy(tsr_graph* graph) {
  const std::unique_ptr<tsr_graph> dying(graph);
  if (dying != nullptr) with_device(*dying->gpu, [&] { cudaGraphExecDestroy(dying->native); });
}

}  // namespace tsr::cuda::host
