// The part of the CUDA runtime that the back end calls, played by threads of the host: device memory is host memory, a
// stream is a thread with a queue. Stricter than CUDA where a mistake would otherwise show on some machines only: freed
// memory is overwritten, a copy that would wait for its stream aborts, as does an event that is recorded into a graph.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace emulated {

/// A kernel launch: `work` runs when the stream gets there, or is recorded if that is being captured.
void enqueue(cudaStream_t stream, std::function<void()> work);

}  // namespace emulated
