// The emulated compute unit from inside: fibers for threads, how they wait for each other, clocks that order their accesses.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "emulator.h"
#include "shadow.h"

namespace tsr::emulation {

enum class Waits : uint8_t {
  kNot,
  kBlock,    // a barrier of the block
  kWave,     // a barrier of the wavefront
  kMeeting,  // an operation of the whole wavefront
  kPermute,  // one of a half, or of the whole
};
constexpr int kWaits = 5;

struct Wave;

struct Fiber {
  void* stack_pointer = nullptr;
  Wave* wave = nullptr;
  int index = 0, lane = 0;
  bool done = false;
  Waits waits = Waits::kNot;
  const char* operation = "";
  size_t lds_used = 0;
  struct Copy {
    const void* from;
    char* to;
    size_t bytes;
  };
  std::vector<Copy> copies;  // on their way into LDS
};

struct Wave {
  Fiber* fibers = nullptr;  // of lane 0; the others follow
  uint64_t alive = 0;
  uint64_t waiting[kWaits] = {};  // lanes, by what they wait for; [kNot]: those that can run
  uint32_t start = 0;             // the clock at its last barrier or meeting: what its lanes did before is ordered
  // Of a meeting: all lanes' operands and results, on their stacks; who came first, whether all came to the same.
  const void* in[kLanes];
  void* out[kLanes];
  const char* operation = "";
  Compute compute = nullptr;
  bool differ = false;
  int value[kLanes], source[kLanes];
};

struct Machine {
  int wave = 0;
  uint32_t threads = 0;
  uint32_t block = 0;
  std::vector<Fiber> fibers;
  std::vector<Wave> waves;
  char* stacks = nullptr;
  size_t stack_count = 0;
  Fiber* current = nullptr;
  void* scheduler = nullptr;
  const std::function<void()>* body = nullptr;
  Failure failure{};
  bool failed = false;
  // Time goes on at every barrier and meeting, and starts over only when all shadows do.
  uint32_t clock = 0, block_begin = 0, block_start = 0;  // block_start: its last barrier, or its begin
  std::unique_ptr<Lds> lds = std::make_unique<Lds>();
};

/// One run at a time: callers hold a lock. Never destroyed: a runtime's threads may run kernels until the process is gone.
extern Machine& machine;

[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace tsr::emulation
