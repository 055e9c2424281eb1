// Fibers, and what they wait for. A lane that has to wait goes on with the next of its wavefront that can run; the last one
// that comes to a meeting does it for all and goes on itself. A wavefront runs for as long as it can before the next does.
#include "emulator.h"

#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "machine.h"

namespace tsr::emulation {

Machine& machine = *new Machine;

namespace {

constexpr size_t kStackBytes = 64 * 1024;
constexpr uint64_t kCanary = 0x5afe57acc5afe57a;

// Leaves the stack that is `saved` to be taken up again here, and takes up the other. It jumps where a call would return, so that
// the processor, which expects lane after lane at the same place, isn't surprised by every one.
[[gnu::always_inline]] inline void switch_to(void** saved, void* other) {
  asm volatile(
      "lea -128(%%rsp), %%rsp\n\t"
      "push %%rbp\n\t"
      "lea 1f(%%rip), %%rax\n\t"
      "push %%rax\n\t"
      "mov %%rsp, (%0)\n\t"
      "mov %1, %%rsp\n\t"
      "pop %%rax\n\t"
      "jmp *%%rax\n"
      "1:\n\t"
      "pop %%rbp\n\t"
      "lea 128(%%rsp), %%rsp\n\t"
      : "+D"(saved), "+S"(other)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc", "xmm0",
        "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
        "xmm14", "xmm15");
}

uint64_t bit_of(const Fiber& f) { return uint64_t{1} << f.lane; }
uint64_t all_lanes() { return machine.wave == 64 ? ~uint64_t{0} : (uint64_t{1} << machine.wave) - 1; }
uint64_t& waiting(Wave& w, Waits waits) { return w.waiting[static_cast<int>(waits)]; }

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

// ---- meetings, when none of a wavefront's lanes can run

void release(Wave& w, Waits waits, uint64_t lanes) {
  waiting(w, waits) &= ~lanes;
  waiting(w, Waits::kNot) |= lanes;
}

/// A permute among `count` lanes from `first` on, if none asks beyond.
bool permute_within(Wave& w, int first, int count) {
  int result[kLanes];
  for (int lane = first; lane < first + count; ++lane) {
    const int source = w.source[lane];
    if (source < first || source >= first + count) return false;
    result[lane] = w.value[source];
  }
  std::memcpy(w.value + first, result + first, sizeof(int) * static_cast<size_t>(count));
  release(w, Waits::kPermute, (count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1) << first);
  return true;
}

bool settle(Wave& w) {
  const uint64_t all = all_lanes();
  if (waiting(w, Waits::kMeeting) == all && !w.differ) {
    w.compute(w.in, w.out);
    w.start = ++machine.clock;
    release(w, Waits::kMeeting, all);
    return true;
  }
  if (w.alive != 0 && waiting(w, Waits::kWave) == w.alive) {
    w.start = ++machine.clock;
    release(w, Waits::kWave, w.alive);
    return true;
  }
  // All lanes together, if they are: one half may ask the other, which asks only itself.
  const uint64_t permuting = waiting(w, Waits::kPermute);
  if (permuting == all) return permute_within(w, 0, machine.wave);
  bool any = false;
  for (int half = 0; half < machine.wave; half += 32) {
    if ((permuting >> half & 0xffffffffu) == 0xffffffffu && permute_within(w, half, 32)) any = true;
  }
  return any;
}

/// On with another lane of the wavefront; back when this one can run.
void pause_fiber() {
  Fiber& f = *machine.current;
  Wave& w = *f.wave;
  uint64_t& running = waiting(w, Waits::kNot);
  if (running == 0) settle(w);
  if (running == 0) {
    switch_to(&f.stack_pointer, machine.scheduler);
    return;
  }
  // The next in turn, so that lanes that are at one place stay together.
  const uint64_t behind = running & ~(bit_of(f) * 2 - 1);
  Fiber& next = w.fibers[__builtin_ctzll(behind != 0 ? behind : running)];
  if (&next == &f) return;
  machine.current = &next;
  switch_to(&f.stack_pointer, next.stack_pointer);
}

void wait_for(Waits waits, const char* operation) {
  Fiber& f = *machine.current;
  f.waits = waits;
  f.operation = operation;
  waiting(*f.wave, Waits::kNot) &= ~bit_of(f);
  waiting(*f.wave, waits) |= bit_of(f);
}

[[noreturn]] void fiber_main() {
  (*machine.body)();
  Fiber& f = *machine.current;
  f.done = true;
  f.wave->alive &= ~bit_of(f);
  waiting(*f.wave, Waits::kNot) &= ~bit_of(f);
  pause_fiber();
  __builtin_unreachable();
}

void report_stuck() {
  const Fiber* one = nullptr;
  const Fiber* other = nullptr;
  for (uint32_t i = 0; i < machine.threads; ++i) {
    const Fiber& f = machine.fibers[i];
    if (f.done) continue;
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

// ---- a block

char* stack_of(size_t i) { return machine.stacks + i * kStackBytes; }

void need_stacks(size_t count) {
  if (machine.stack_count >= count) return;
  if (machine.stacks != nullptr) munmap(machine.stacks, machine.stack_count * kStackBytes);
  machine.stack_count = 0;
  void* const made =
      mmap(nullptr, count * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  machine.stacks = made == MAP_FAILED ? nullptr : static_cast<char*>(made);
  if (machine.stacks == nullptr) fail("no memory for stacks");
  machine.stack_count = count;
  for (size_t i = 0; i < count; ++i) std::memcpy(stack_of(i), &kCanary, sizeof kCanary);
}

void prepare(Fiber& f, int index, Wave* wave) {
  f.wave = wave;
  f.index = index;
  f.lane = index % machine.wave;
  f.done = false;
  f.waits = Waits::kNot;
  f.lds_used = 0;
  f.copies.clear();
  // Not all at one distance from their ends, where they would share a few lines of the caches.
  const size_t apart = static_cast<size_t>(index) % 16 * 832;
  void** top = reinterpret_cast<void**>(stack_of(static_cast<size_t>(index)) + kStackBytes - 64 - apart);
  *--top = nullptr;  // alignment, as after a call
  *--top = reinterpret_cast<void*>(&fiber_main);
  f.stack_pointer = top;
}

void begin_block() {
  if (machine.clock > UINT32_MAX / 2) {
    std::memset(machine.lds->shadow, 0, sizeof machine.lds->shadow);
    machine.clock = 0;
  }
  machine.block_begin = machine.block_start = ++machine.clock;
  machine.lds->used = 0;
  for (size_t i = 0; i < machine.waves.size(); ++i) {
    Wave& w = machine.waves[i];
    w = Wave{};
    w.fibers = machine.fibers.data() + i * static_cast<size_t>(machine.wave);
    w.alive = w.waiting[0] = all_lanes();
    w.start = machine.clock;
    for (int lane = 0; lane < machine.wave; ++lane)
      prepare(w.fibers[lane], static_cast<int>(i) * machine.wave + lane, &w);
  }
}

/// True if that lets the block's threads go on.
bool settle_block() {
  bool any = false;
  for (Wave& w : machine.waves) {
    if (waiting(w, Waits::kBlock) != w.alive) return false;
    any = any || w.alive != 0;
  }
  if (!any) return false;
  machine.block_start = ++machine.clock;
  for (Wave& w : machine.waves) release(w, Waits::kBlock, w.alive);
  return true;
}

void run_block() {
  begin_block();
  do {
    for (Wave& w : machine.waves) {
      // Lanes that end may leave others behind that can go on now.
      while (waiting(w, Waits::kNot) != 0 || settle(w)) {
        machine.current = &w.fibers[__builtin_ctzll(waiting(w, Waits::kNot))];
        switch_to(&machine.scheduler, machine.current->stack_pointer);
        if (machine.failed) throw machine.failure;
      }
    }
  } while (settle_block());
  for (const Wave& w : machine.waves) {
    if (w.alive != 0) report_stuck();
  }
  machine.current = nullptr;
  for (uint32_t i = 0; i < machine.threads; ++i) {
    if (std::memcmp(stack_of(i), &kCanary, sizeof kCanary) != 0) fail("the emulator's stacks are too small");
  }
}

}  // namespace

void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char what[256];
  std::vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  Fiber* const f = machine.current;
  std::snprintf(machine.failure.text, sizeof machine.failure.text, "%s (block %u, thread %d)", what, machine.block,
                f ? f->index : -1);
  machine.failed = true;
  if (f == nullptr) throw machine.failure;
  // Back to the scheduler, which throws: an exception can't unwind across stacks.
  switch_to(&f->stack_pointer, machine.scheduler);
  __builtin_unreachable();
}

void run(int wave, uint32_t blocks, uint32_t threads, const std::function<void()>& body) {
  machine.wave = wave;
  machine.threads = threads;
  machine.body = &body;
  machine.failed = false;
  machine.current = nullptr;
  if (threads % static_cast<uint32_t>(wave) != 0) fail("%u threads are no whole wavefronts of %d", threads, wave);
  if (machine.fibers.size() < threads) machine.fibers.resize(threads);
  machine.waves.resize(threads / static_cast<uint32_t>(wave));
  need_stacks(threads);
  for (machine.block = 0; machine.block < blocks; ++machine.block) run_block();
}

int thread_index() { return machine.current->index; }
uint32_t block_index() { return machine.block; }
int lane_index() { return machine.current->lane; }

void block_barrier() {
  wait_for(Waits::kBlock, "");
  pause_fiber();
}
void wave_barrier() {
  wait_for(Waits::kWave, "");
  pause_fiber();
}

int permute(int value, int lane) {
  Fiber& f = *machine.current;
  f.wave->value[f.lane] = value;
  f.wave->source[f.lane] = lane & (machine.wave - 1);
  wait_for(Waits::kPermute, "");
  pause_fiber();
  return f.wave->value[f.lane];
}

void meet(const char* operation, const void* in, void* out, Compute compute) {
  Fiber& f = *machine.current;
  Wave& w = *f.wave;
  if (waiting(w, Waits::kMeeting) == 0) {
    w.operation = operation;
    w.compute = compute;
    w.differ = false;
  }
  w.differ = w.differ || operation != w.operation;
  w.in[f.lane] = in;
  w.out[f.lane] = out;
  wait_for(Waits::kMeeting, operation);
  pause_fiber();
}

}  // namespace tsr::emulation
