#include "emulator.h"

#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace tsr::emulation {
namespace {

constexpr size_t kStackBytes = 128 * 1024;
constexpr size_t kLdsBytes =
    160 * 1024;           // of the largest architecture; kernels say less, and arrays are checked on their own
constexpr int kWord = 2;  // bytes of a shadow entry

// Saves the callee-saved registers on the stack that is left and takes up the other.
extern "C" void tsr_emulation_switch(void** from, void* to);
asm(R"(
.text
.globl tsr_emulation_switch
.hidden tsr_emulation_switch
tsr_emulation_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");

enum class Waits {
  kNot,
  kBlock,    // a barrier of the block
  kWave,     // a barrier of the wavefront
  kMeeting,  // an operation of the whole wavefront
  kPermute,  // one of a half, or of the whole
};

struct Fiber {
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  int index = 0;
  bool done = false;
  Waits waits = Waits::kNot;
  const char* operation = "";
  uint64_t released = 0;  // counts the meetings that this fiber has left
  size_t lds_used = 0;
  struct Copy {
    const void* from;
    char* to;
    size_t bytes;
  };
  std::vector<Copy> copies;  // on their way into LDS
};

struct Wave {
  int epoch = 0;  // wave barriers and meetings so far: orders the lanes' LDS accesses
  unsigned char in[kLanes][kSlot];
  unsigned char out[kLanes][kSlot];
  int value[kLanes], source[kLanes];
};

struct Shadow {
  int16_t writer = -1;  // thread; -1: nobody in this block
  int16_t reader = -1;
  bool readers = false;  // more than one since the last write
  int write_epoch = 0, write_wave_epoch = 0;
  int read_epoch = 0, read_wave_epoch = 0;
};

struct Block {
  uint32_t number = 0;
  int epoch = 0;
  alignas(64) unsigned char lds[kLdsBytes];
  Shadow shadow[kLdsBytes / kWord];
  size_t lds_bytes = 0;
};

struct Machine {
  int wave = 0;
  uint32_t threads = 0;
  std::vector<Fiber> fibers;
  std::vector<Wave> waves;
  std::unique_ptr<Block> block = std::make_unique<Block>();
  Fiber* current = nullptr;
  void* scheduler = nullptr;
  const std::function<void()>* body = nullptr;
  Failure failure{};
  bool failed = false;
};

// One run at a time: callers hold a lock. Never destroyed: a runtime's threads may run kernels until the process is gone.
Machine& machine = *new Machine;

[[noreturn]] void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char what[256];
  std::vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  const Fiber* const f = machine.current;
  std::snprintf(machine.failure.text, sizeof machine.failure.text, "%s (block %u, thread %d)", what,
                machine.block->number, f ? f->index : -1);
  machine.failed = true;
  if (f == nullptr) throw machine.failure;
  // Back to the scheduler, which throws: an exception can't unwind across stacks.
  tsr_emulation_switch(&machine.current->stack_pointer, machine.scheduler);
  __builtin_unreachable();
}

void pause_fiber() { tsr_emulation_switch(&machine.current->stack_pointer, machine.scheduler); }

Wave& wave_of(const Fiber& f) { return machine.waves[static_cast<size_t>(f.index / machine.wave)]; }
int lane_of(const Fiber& f) { return f.index % machine.wave; }

void fiber_main() {
  (*machine.body)();
  machine.current->done = true;
  pause_fiber();
  __builtin_unreachable();
}

void prepare(Fiber* f, int index) {
  if (f->stack == nullptr) {
    f->stack = static_cast<char*>(
        mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (f->stack == MAP_FAILED) fail("no memory for stacks");
  }
  f->index = index;
  f->done = false;
  f->waits = Waits::kNot;
  f->lds_used = 0;
  f->copies.clear();
  void** top = reinterpret_cast<void**>(f->stack + kStackBytes - 64);
  *--top = nullptr;  // alignment, as after a call
  *--top = reinterpret_cast<void*>(&fiber_main);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  f->stack_pointer = top;
}

const char* name_of(Waits waits) {
  switch (waits) {
    case Waits::kBlock:
      return "a block barrier";
    case Waits::kWave:
      return "a wave barrier";
    case Waits::kMeeting:
      return "an operation across lanes";
    case Waits::kPermute:
      return "a permute";
    default:
      return "nothing";
  }
}

// ---- meetings, decided by the scheduler when nobody can run

struct Group {
  int first, count;
};

bool all_wait(Group g, Waits waits, bool but_the_gone) {
  bool any = false;
  for (int i = g.first; i < g.first + g.count; ++i) {
    const Fiber& f = machine.fibers[static_cast<size_t>(i)];
    if (f.done && but_the_gone) continue;
    if (f.done || f.waits != waits) return false;
    any = true;
  }
  return any;
}

void release(Group g) {
  for (int i = g.first; i < g.first + g.count; ++i) {
    Fiber& f = machine.fibers[static_cast<size_t>(i)];
    if (!f.done) f.waits = Waits::kNot;
  }
}

bool same_operation(Group g) {
  for (int i = g.first + 1; i < g.first + g.count; ++i) {
    if (std::strcmp(machine.fibers[static_cast<size_t>(i)].operation,
                    machine.fibers[static_cast<size_t>(g.first)].operation) != 0) {
      return false;
    }
  }
  return true;
}

// A permute among the lanes of g, if none asks beyond.
bool permute_within(Group g) {
  Wave& w = machine.waves[static_cast<size_t>(g.first / machine.wave)];
  const int first = g.first % machine.wave;
  for (int lane = first; lane < first + g.count; ++lane) {
    if (w.source[lane] < first || w.source[lane] >= first + g.count) return false;
  }
  int result[kLanes];
  for (int lane = first; lane < first + g.count; ++lane) result[lane] = w.value[w.source[lane]];
  for (int lane = first; lane < first + g.count; ++lane) w.value[lane] = result[lane];
  release(g);
  return true;
}

Compute pending_compute;

bool settle_wave(int first) {
  const Group whole{first, machine.wave};
  Wave& w = machine.waves[static_cast<size_t>(first / machine.wave)];
  if (all_wait(whole, Waits::kMeeting, false) && same_operation(whole)) {
    std::memcpy(&pending_compute, w.out[0], sizeof pending_compute);
    pending_compute(w.in, w.out);
    ++w.epoch;
    release(whole);
    return true;
  }
  if (all_wait(whole, Waits::kWave, true)) {
    ++w.epoch;
    release(whole);
    return true;
  }
  // All lanes together, if they are: one half may ask the other, which asks only itself.
  if (all_wait(whole, Waits::kPermute, false)) return permute_within(whole);
  bool any = false;
  for (int half = 0; half < machine.wave; half += 32) {
    const Group g{first + half, 32};
    if (all_wait(g, Waits::kPermute, false) && permute_within(g)) any = true;
  }
  return any;
}

bool settle() {
  const int threads = static_cast<int>(machine.threads);
  bool any = false;
  for (int first = 0; first < threads; first += machine.wave) any = settle_wave(first) || any;
  if (any) return true;
  if (all_wait(Group{0, threads}, Waits::kBlock, true)) {
    ++machine.block->epoch;
    release(Group{0, threads});
    return true;
  }
  return false;
}

void report_stuck() {
  const Fiber* one = nullptr;
  const Fiber* other = nullptr;
  for (const Fiber& f : machine.fibers) {
    if (f.index >= static_cast<int>(machine.threads) || f.done) continue;
    if (one == nullptr) one = &f;
    if (f.waits != one->waits || std::strcmp(f.operation, one->operation) != 0) other = &f;
  }
  machine.current = nullptr;
  if (other != nullptr) {
    fail("divergent: thread %d waits at %s %s, thread %d at %s %s", one->index, name_of(one->waits), one->operation,
         other->index, name_of(other->waits), other->operation);
  }
  fail("thread %d waits at %s %s for threads that are gone", one ? one->index : -1, one ? name_of(one->waits) : "",
       one ? one->operation : "");
}

void run_block() {
  const size_t threads = machine.threads;
  Block& block = *machine.block;
  block.epoch = 0;
  std::memset(block.lds, 0xff, block.lds_bytes ? block.lds_bytes : kLdsBytes);  // NaN in every type
  const size_t words = (block.lds_bytes ? block.lds_bytes : kLdsBytes) / kWord;
  for (size_t i = 0; i < words; ++i) block.shadow[i] = Shadow{};
  block.lds_bytes = 0;
  for (Wave& w : machine.waves) w.epoch = 0;
  for (size_t i = 0; i < threads; ++i) prepare(&machine.fibers[i], static_cast<int>(i));
  size_t alive = threads;
  while (alive > 0) {
    bool ran = false;
    alive = 0;
    for (size_t i = 0; i < threads; ++i) {
      Fiber& f = machine.fibers[i];
      if (f.done) continue;
      if (f.waits == Waits::kNot) {
        machine.current = &f;
        tsr_emulation_switch(&machine.scheduler, f.stack_pointer);
        if (machine.failed) throw machine.failure;
        ran = true;
      }
      if (!f.done) ++alive;
    }
    if (!settle() && !ran && alive > 0) report_stuck();
  }
  machine.current = nullptr;
}

Shadow* shadow_of(const void* at, size_t bytes, const char* what) {
  Block& block = *machine.block;
  const auto* const byte = static_cast<const unsigned char*>(at);
  if (byte < block.lds || byte + bytes > block.lds + block.lds_bytes) {
    fail("LDS %s outside of the block's %zu bytes, at %td", what, block.lds_bytes, byte - block.lds);
  }
  if (reinterpret_cast<uintptr_t>(at) % (bytes < 16 ? bytes : 16) != 0)
    fail("LDS %s of %zu bytes misaligned", what, bytes);
  return block.shadow + (byte - block.lds) / kWord;
}

// Two threads' accesses without a barrier between them.
bool unordered(int16_t other, int epoch, int wave_epoch) {
  const Fiber& f = *machine.current;
  if (other < 0 || other == f.index || epoch != machine.block->epoch) return false;
  return other / machine.wave != f.index / machine.wave || wave_epoch == wave_of(f).epoch;
}

}  // namespace

void run(int wave, uint32_t blocks, uint32_t threads, const std::function<void()>& body) {
  machine.wave = wave;
  machine.threads = threads;
  machine.body = &body;
  machine.failed = false;
  machine.current = nullptr;
  if (machine.fibers.size() < threads) machine.fibers.resize(threads);
  machine.waves.resize((threads + static_cast<uint32_t>(wave) - 1) / static_cast<uint32_t>(wave));
  if (threads % static_cast<uint32_t>(wave) != 0) fail("%u threads are no whole wavefronts of %d", threads, wave);
  for (uint32_t b = 0; b < blocks; ++b) {
    machine.block->number = b;
    run_block();
  }
}

int thread_index() { return machine.current->index; }
uint32_t block_index() { return machine.block->number; }
int lane_index() { return lane_of(*machine.current); }

void block_barrier() {
  machine.current->waits = Waits::kBlock;
  machine.current->operation = "";
  pause_fiber();
}
void wave_barrier() {
  machine.current->waits = Waits::kWave;
  machine.current->operation = "";
  pause_fiber();
}

char* lds(size_t bytes) {
  Block& block = *machine.block;
  Fiber& f = *machine.current;
  const size_t at = (f.lds_used + 63) / 64 * 64;
  f.lds_used = at + bytes;
  if (f.lds_used > kLdsBytes) fail("%zu bytes of LDS", f.lds_used);
  if (f.lds_used > block.lds_bytes) block.lds_bytes = f.lds_used;
  return reinterpret_cast<char*>(block.lds) + at;
}

void lds_read(const void* at, size_t bytes) {
  Shadow* const shadow = shadow_of(at, bytes, "read");
  const Fiber& f = *machine.current;
  for (size_t i = 0; i < (bytes + kWord - 1) / kWord; ++i) {
    Shadow& s = shadow[i];
    if (s.writer < 0) fail("LDS word read that nobody wrote");
    if (unordered(s.writer, s.write_epoch, s.write_wave_epoch)) {
      fail("LDS race: thread %d wrote what is read, no barrier between", s.writer);
    }
    s.readers = s.readers || (s.reader >= 0 && s.reader != f.index && s.read_epoch == machine.block->epoch);
    s.reader = static_cast<int16_t>(f.index);
    s.read_epoch = machine.block->epoch;
    s.read_wave_epoch = wave_of(f).epoch;
  }
}

void lds_write(const void* at, size_t bytes) {
  Shadow* const shadow = shadow_of(at, bytes, "write");
  const Fiber& f = *machine.current;
  for (size_t i = 0; i < (bytes + kWord - 1) / kWord; ++i) {
    Shadow& s = shadow[i];
    if (unordered(s.writer, s.write_epoch, s.write_wave_epoch)) {
      fail("LDS race: thread %d wrote the same word, no barrier between", s.writer);
    }
    if (unordered(s.reader, s.read_epoch, s.read_wave_epoch) || (s.readers && s.read_epoch == machine.block->epoch)) {
      fail("LDS race: thread %d read what is overwritten, no barrier between", s.reader);
    }
    s.writer = static_cast<int16_t>(f.index);
    s.write_epoch = machine.block->epoch;
    s.write_wave_epoch = wave_of(f).epoch;
    s.reader = -1;
    s.readers = false;
  }
}

// A copy is a write from here until it lands: both ends are held against what others do.
void copy_to_lds(const void* from, char* to, size_t bytes) {
  Fiber& f = *machine.current;
  char* const at = to + static_cast<size_t>(lane_of(f)) * bytes;
  lds_write(at, bytes);
  f.copies.push_back({from, at, bytes});
}
void land_copies() {
  Fiber& f = *machine.current;
  for (const Fiber::Copy& copy : f.copies) {
    lds_write(copy.to, copy.bytes);
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
  f.copies.clear();
}

int permute(int value, int lane) {
  Fiber& f = *machine.current;
  Wave& w = wave_of(f);
  w.value[lane_of(f)] = value;
  w.source[lane_of(f)] = lane & (machine.wave - 1);
  f.waits = Waits::kPermute;
  f.operation = "";
  pause_fiber();
  return w.value[lane_of(f)];
}

void meet(const char* operation, const void* in, size_t in_bytes, void* out, size_t out_bytes, Compute compute) {
  Fiber& f = *machine.current;
  Wave& w = wave_of(f);
  if (in_bytes > kSlot || out_bytes > kSlot) fail("%s: operands too large", operation);
  std::memcpy(w.in[lane_of(f)], in, in_bytes);
  if (lane_of(f) == 0) std::memcpy(w.out[0], &compute, sizeof compute);
  f.waits = Waits::kMeeting;
  f.operation = operation;
  pause_fiber();
  std::memcpy(out, w.out[lane_of(f)], out_bytes);
}

}  // namespace tsr::emulation
