// The part of the CUDA runtime that the back end calls, played by threads of the host: device memory is host memory, a
// stream is a thread with a queue. Stricter than CUDA where a mistake would otherwise show on some machines only: freed
// memory is overwritten, a copy that would wait for its stream aborts, as does an event that is recorded into a graph.
// EMULATED_NO_POOLS: a device without memory pools. STUB_FAIL, STUB_RECORD, STUB_LEFT: backends/common/tests/played/failing.h.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace emulated {

/// A kernel launch: `work` runs when the stream gets there, or is recorded if that is being captured.
void enqueue(cudaStream_t stream, std::function<void()> work);
/// What a launch returns: an error that STUB_FAIL asks for (cudaLaunchKernel), which is then nothing else.
cudaError_t launched();

}  // namespace emulated
