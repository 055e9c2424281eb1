#include "staging.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "gpu.h"
#include "tessera/common/text.h"

namespace tsr::hip::host {
namespace {

constexpr uint64_t kPiece = uint64_t{4} << 20;

constexpr uint64_t kTakenAtOnce = 64 << 10;

struct Move {
  void* dst;
  const void* src;
  uint64_t bytes;
  std::vector<char> taken{};  ///< what src is, if it was taken at once
};

void move_once(void* argument) {
  const std::unique_ptr<Move> move(static_cast<Move*>(argument));
  std::memcpy(move->dst, move->src, move->bytes);
}

void move_again(void* argument) {
  const auto* const move = static_cast<Move*>(argument);
  std::memcpy(move->dst, move->src, move->bytes);
}

// One piece through `pinned`: on the way in the function runs before the copy, on the way out behind it.
Verdict enqueue(Gpu& gpu, hipStream_t stream, const Move& piece, void* pinned, bool to_host, hipHostFn_t function,
                Move* move) {
  move->dst = to_host ? piece.dst : pinned;
  move->src = to_host ? pinned : piece.src;
  move->bytes = piece.bytes;
  if (to_host) {
    TSR_TRY(gpu.check(hip().hipMemcpyAsync(pinned, piece.src, piece.bytes, hipMemcpyDeviceToHost, stream),
                      "copy: hipMemcpyAsync"));
  }
  TSR_TRY(gpu.check(hip().hipLaunchHostFunc(stream, function, move), "copy: hipLaunchHostFunc"));
  if (to_host) return {};
  return gpu.check(hip().hipMemcpyAsync(piece.dst, pinned, piece.bytes, hipMemcpyHostToDevice, stream),
                   "copy: hipMemcpyAsync");
}

// A graph runs its copies again and again, perhaps while the stream that it was captured on copies something else. So it
// gets page-locked memory of its own, which goes with it.
struct Captured {
  Gpu* gpu;
  void* pinned;
  Move move;
};

void drop_captured(void* argument) {
  const std::unique_ptr<Captured> captured(static_cast<Captured*>(argument));
  captured->gpu->discard_pinned(captured->pinned);
}

Verdict capture(Gpu& gpu, hipStream_t stream, const Move& all, bool to_host) {
  const Relaxed relaxed;
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  hipGraph_t graph = nullptr;
  TSR_TRY(gpu.check(hip().hipStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, nullptr, nullptr),
                    "copy: hipStreamGetCaptureInfo_v2"));
  if (status != hipStreamCaptureStatusActive) {
    return invalid("stream: its recording was invalidated by an earlier error; end it and begin again");
  }
  auto captured = std::make_unique<Captured>(Captured{&gpu, nullptr, {}});
  TSR_TRY(gpu.check(hip().hipHostMalloc(&captured->pinned, all.bytes, hipHostMallocDefault), "copy: hipHostMalloc"));
  hipUserObject_t object = nullptr;
  const hipError_t created =
      hip().hipUserObjectCreate(&object, captured.get(), drop_captured, 1, hipUserObjectNoDestructorSync);
  if (created != hipSuccess) {
    hip().hipHostFree(captured->pinned);
    return gpu.check(created, "copy: hipUserObjectCreate");
  }
  Captured* const kept = captured.release();
  const hipError_t retained = hip().hipGraphRetainUserObject(graph, object, 1, hipGraphUserObjectMove);
  if (retained != hipSuccess) {
    hip().hipUserObjectRelease(object, 1);
    return gpu.check(retained, "copy: hipGraphRetainUserObject");
  }
  return enqueue(gpu, stream, all, kept->pinned, to_host, move_again, &kept->move);
}

}  // namespace

bool is_pageable(const void* host) {
  // Asks for no type: hipPointerGetAttributes answers in one way up to HIP 5 and in another from HIP 6 on.
  void* device = nullptr;
  const bool known = hip().hipHostGetDevicePointer(&device, const_cast<void*>(host), 0) == hipSuccess;
  if (!known) hip().hipGetLastError();
  return !known;
}

Verdict Staging::prepare(Gpu& gpu) {
  if (memory_ != nullptr) return {};
  const Relaxed relaxed;
  if (done_ == nullptr) {
    TSR_TRY(gpu.check(hip().hipEventCreateWithFlags(&done_, hipEventDisableTiming), "copy: hipEventCreateWithFlags"));
  }
  return gpu.check(hip().hipHostMalloc(&memory_, kPiece, hipHostMallocDefault), "copy: hipHostMalloc");
}

void Staging::release() {
  if (done_ != nullptr) {
    hip().hipEventSynchronize(done_);
    hip().hipEventDestroy(done_);
  }
  if (memory_ != nullptr) hip().hipHostFree(memory_);
  hip().hipGetLastError();
  done_ = nullptr;
  memory_ = nullptr;
}

Verdict copy_pageable(Gpu& gpu, Staging& staging, hipStream_t stream, void* dst, const void* src, uint64_t bytes,
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
    Move piece{static_cast<char*>(dst) + at, static_cast<const char*>(src) + at, std::min(kPiece, bytes - at)};
    auto move = std::make_unique<Move>();
    if (!to_host && bytes <= kTakenAtOnce) {
      const auto* const begin = static_cast<const char*>(piece.src);
      move->taken.assign(begin, begin + piece.bytes);
      piece.src = move->taken.data();
    }
    verdict = enqueue(gpu, stream, piece, staging.memory_, to_host, move_once, move.get());
    // The stream's now. What failed on the way out never reached it; on the way in that isn't sure.
    if (verdict.ok() || !to_host) move.release();
  }
  // Also behind a copy that failed half-way: its first pieces still use the memory.
  const Verdict recorded = gpu.check(hip().hipEventRecord(staging.done_, stream), "copy: hipEventRecord");
  return verdict.ok() ? recorded : verdict;
}

}  // namespace tsr::hip::host
