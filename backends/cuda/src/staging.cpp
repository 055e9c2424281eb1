#include "staging.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "gpu.h"
#include "tessera/common/text.h"

namespace tsr::cuda::host {
namespace {

constexpr uint64_t kPiece = uint64_t{4} << 20;

struct Move {
  void* dst;
  const void* src;
  uint64_t bytes;
};

void CUDART_CB move_once(void* argument) {
  const std::unique_ptr<Move> move(static_cast<Move*>(argument));
  std::memcpy(move->dst, move->src, move->bytes);
}

void CUDART_CB move_again(void* argument) {
  const auto* const move = static_cast<Move*>(argument);
  std::memcpy(move->dst, move->src, move->bytes);
}

// One piece through `pinned`: on the way in the function runs before the copy, on the way out behind it.
Verdict enqueue(Gpu& gpu, cudaStream_t stream, const Move& piece, void* pinned, bool to_host, cudaHostFn_t function,
                Move* move) {
  *move = to_host ? Move{piece.dst, pinned, piece.bytes} : Move{pinned, piece.src, piece.bytes};
  if (to_host) {
    TSR_TRY(gpu.check(cudaMemcpyAsync(pinned, piece.src, piece.bytes, cudaMemcpyDeviceToHost, stream),
                      "copy: cudaMemcpyAsync"));
  }
  TSR_TRY(gpu.check(cudaLaunchHostFunc(stream, function, move), "copy: cudaLaunchHostFunc"));
  if (to_host) return {};
  return gpu.check(cudaMemcpyAsync(piece.dst, pinned, piece.bytes, cudaMemcpyHostToDevice, stream),
                   "copy: cudaMemcpyAsync");
}

// A graph runs its copies again and again, perhaps while the stream that it was captured on copies something else. So it
// gets page-locked memory of its own, which goes with it.
struct Captured {
  Gpu* gpu;
  void* pinned;
  Move move;
};

void CUDART_CB drop_captured(void* argument) {
  const std::unique_ptr<Captured> captured(static_cast<Captured*>(argument));
  captured->gpu->discard_pinned(captured->pinned);
}

Verdict capture(Gpu& gpu, cudaStream_t stream, const Move& all, bool to_host) {
  const Relaxed relaxed;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  TSR_TRY(gpu.check(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr),
                    "copy: cudaStreamGetCaptureInfo"));
  if (status != cudaStreamCaptureStatusActive) {
    return invalid("stream: its recording was invalidated by an earlier error; end it and begin again");
  }
  auto captured = std::make_unique<Captured>(Captured{&gpu, nullptr, {}});
  TSR_TRY(gpu.check(cudaHostAlloc(&captured->pinned, all.bytes, cudaHostAllocDefault), "copy: cudaHostAlloc"));
  cudaUserObject_t object = nullptr;
  const cudaError_t created =
      cudaUserObjectCreate(&object, captured.get(), drop_captured, 1, cudaUserObjectNoDestructorSync);
  if (created != cudaSuccess) {
    cudaFreeHost(captured->pinned);
    return gpu.check(created, "copy: cudaUserObjectCreate");
  }
  Captured* const kept = captured.release();
  const cudaError_t retained = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
  if (retained != cudaSuccess) {
    cudaUserObjectRelease(object, 1);
    return gpu.check(retained, "copy: cudaGraphRetainUserObject");
  }
  return enqueue(gpu, stream, all, kept->pinned, to_host, move_again, &kept->move);
}

}  // namespace

bool is_pageable(const void* host) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, host) != cudaSuccess) {
    cudaGetLastError();
    return false;  // CUDA will say what is wrong with it
  }
  return attributes.type == cudaMemoryTypeUnregistered;
}

Verdict Staging::prepare(Gpu& gpu) {
  if (memory_ != nullptr) return {};
  const Relaxed relaxed;
  if (done_ == nullptr) {
    TSR_TRY(gpu.check(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "copy: cudaEventCreateWithFlags"));
  }
  return gpu.check(cudaHostAlloc(&memory_, kPiece, cudaHostAllocDefault), "copy: cudaHostAlloc");
}

void Staging::release() {
  if (done_ != nullptr) {
    cudaEventSynchronize(done_);
    cudaEventDestroy(done_);
  }
  if (memory_ != nullptr) cudaFreeHost(memory_);
  cudaGetLastError();
  done_ = nullptr;
  memory_ = nullptr;
}

Verdict copy_pageable(Gpu& gpu, Staging& staging, cudaStream_t stream, void* dst, const void* src, uint64_t bytes,
                      bool to_host) {
  gpu.collect_pinned();
  bool capturing = false;
  TSR_TRY(gpu.check_capturing(stream, &capturing));
  if (capturing) return capture(gpu, stream, Move{dst, src, bytes}, to_host);
  // Of two threads' copies on one stream, each has to enqueue its pieces with none of the other's between a copy and its
  // function.
  const std::lock_guard<std::mutex> lock(staging.mutex_);
  TSR_TRY(staging.prepare(gpu));
  Verdict verdict;
  for (uint64_t at = 0; at < bytes && verdict.ok(); at += kPiece) {
    const Move piece{static_cast<char*>(dst) + at, static_cast<const char*>(src) + at, std::min(kPiece, bytes - at)};
    auto move = std::make_unique<Move>();
    verdict = enqueue(gpu, stream, piece, staging.memory_, to_host, move_once, move.get());
    // The stream's now. What failed on the way out never reached it; on the way in that isn't sure.
    if (verdict.ok() || !to_host) move.release();
  }
  // Also behind a copy that failed half-way: its first pieces still use the memory.
  const Verdict recorded = gpu.check(cudaEventRecord(staging.done_, stream), "copy: cudaEventRecord");
  return verdict.ok() ? recorded : verdict;
}

}  // namespace tsr::cuda::host
