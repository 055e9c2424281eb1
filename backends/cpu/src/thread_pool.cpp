#include "thread_pool.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "system.h"

namespace tsr::cpu {
namespace {

// Looking again costs less than a sleep and a wake when loops follow each other, as they do in a model. To wake a thread
// takes some 10 us, on a virtual machine, whose idle cores are halted, 20 to 50; so long a worker looks, and no longer, so
// that an idle engine leaves the cores to others.
constexpr std::chrono::microseconds kSpin{50};

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Looks until `done` or for as long as kSpin. Gives the core away to whoever waits for it.
template <class F>
bool spin(F&& done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      pause();
    }
    system::yield();
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace

// On the stack of the caller of run().
struct ThreadPool::Loop {
  Call call;
  void* body;
  int64_t items;
  std::atomic<int64_t> next{0};
  std::atomic<int> helpers{0};     ///< workers inside; grows only under the lock
  std::exception_ptr failure{};    ///< under the lock
  std::condition_variable done{};  ///< the last helper has left
  Loop* following = nullptr;       ///< in the list, under the lock
};

// Behind a pointer, because a forked child can't even destroy it: that would wait for threads it doesn't have.
struct ThreadPool::Shared {
  const int64_t process = system::process_id();
  std::mutex mutex;
  std::condition_variable wake;
  Loop* loops = nullptr;            ///< under the lock
  std::atomic<uint64_t> posted{0};  ///< counts loops, so that a worker can see a new one without the lock
  bool started = false;
  bool stopping = false;
  int caller_core = -1;  ///< under the lock: the one that workers keep off
  std::vector<std::thread> threads;

  void start(int size);
  void keep_off_caller();
  Loop* open_loop() const;
  void take_items(Loop& loop, int worker);
  void work(int worker);
};

ThreadPool::ThreadPool(int threads) : size_(threads > 1 ? threads : 1), shared_(new Shared) {}

ThreadPool::~ThreadPool() {
  if (shared_->process != system::process_id()) return;
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->stopping = true;
    shared_->posted.fetch_add(1, std::memory_order_relaxed);
  }
  shared_->wake.notify_all();
  for (std::thread& thread : shared_->threads) thread.join();
  delete shared_;
}

// Under the lock. Fewer threads than asked for (a limit of the system) is no failure: the loop is only slower.
void ThreadPool::Shared::start(int size) {
  started = true;
  const system::NoSignals meanwhile;
  try {
    threads.reserve(static_cast<size_t>(size - 1));
    for (int worker = 1; worker < size; ++worker) threads.emplace_back([this, worker] { work(worker); });
  } catch (const std::exception&) {
  }
}

// Under the lock. A scheduler likes to wake a thread on the core of who wakes it, above all on a virtual machine, whose
// idle cores look as if others had taken them. There a worker would wait for the caller, which is not about to sleep: a loop
// of 100 us would be over first. So workers may use the caller's cores but for the one that it is on. With many cores one is
// no loss, and each worker costs a system call when a caller has moved.
void ThreadPool::Shared::keep_off_caller() {
  constexpr size_t kFewThreads = 8;
  const int core = system::this_processor();
  if (core < 0 || core == caller_core || threads.size() >= kFewThreads) return;
  caller_core = core;
  system::keep_off(core, threads);
}

// Under the lock: a loop that still has items.
ThreadPool::Loop* ThreadPool::Shared::open_loop() const {
  for (Loop* loop = loops; loop != nullptr; loop = loop->following) {
    if (loop->next.load(std::memory_order_relaxed) < loop->items) return loop;
  }
  return nullptr;
}

void ThreadPool::Shared::take_items(Loop& loop, int worker) {
  try {
    for (;;) {
      const int64_t item = loop.next.fetch_add(1, std::memory_order_relaxed);
      if (item >= loop.items) return;
      loop.call(loop.body, item, worker);
    }
  } catch (...) {
    loop.next.store(loop.items, std::memory_order_relaxed);
    const std::lock_guard<std::mutex> lock(mutex);
    if (!loop.failure) loop.failure = std::current_exception();
  }
}

void ThreadPool::Shared::work(int worker) {
  std::unique_lock<std::mutex> lock(mutex);
  while (!stopping) {
    Loop* const loop = open_loop();
    if (loop != nullptr) {
      loop->helpers.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      take_items(*loop, worker);
      lock.lock();
      // Under the lock: the caller may destroy the loop as soon as it sees zero, and it looks with the lock held.
      if (loop->helpers.fetch_sub(1, std::memory_order_release) == 1) loop->done.notify_one();
      continue;
    }
    const uint64_t seen = posted.load(std::memory_order_relaxed);
    lock.unlock();
    const bool changed = spin([&] { return posted.load(std::memory_order_relaxed) != seen; });
    lock.lock();
    if (!changed) wake.wait(lock, [&] { return stopping || posted.load(std::memory_order_relaxed) != seen; });
  }
}

void ThreadPool::run_loop(int64_t items, Call call, void* body) {
  Shared& shared = *shared_;
  if (shared.process != system::process_id()) {
    for (int64_t item = 0; item < items; ++item) call(body, item, 0);
    return;
  }
  Loop loop{call, body, items};
  {
    const std::lock_guard<std::mutex> lock(shared.mutex);
    if (!shared.started) shared.start(size_);
    shared.keep_off_caller();
    loop.following = shared.loops;
    shared.loops = &loop;
    shared.posted.fetch_add(1, std::memory_order_relaxed);
  }
  if (items > 2) {
    shared.wake.notify_all();
  } else {
    shared.wake.notify_one();
  }

  shared.take_items(loop, 0);

  spin([&] { return loop.helpers.load(std::memory_order_acquire) == 0; });
  std::unique_lock<std::mutex> lock(shared.mutex);
  for (Loop** at = &shared.loops; *at != nullptr; at = &(*at)->following) {
    if (*at == &loop) {
      *at = loop.following;
      break;
    }
  }
  loop.done.wait(lock, [&] { return loop.helpers.load(std::memory_order_acquire) == 0; });
  if (loop.failure) std::rethrow_exception(loop.failure);
}

}  // namespace tsr::cpu
