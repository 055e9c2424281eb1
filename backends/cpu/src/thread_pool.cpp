#include "thread_pool.h"

#include <csignal>
#include <pthread.h>
#include <system_error>
#include <unistd.h>

namespace tsr::cpu {
namespace {

// Looking again costs less than a sleep and a wake (some 10 us) when loops follow each other, as they do in a model. The
// bound is a few microseconds, so that an idle engine leaves the cores to others.
constexpr int kSpins = 400;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) : size_(threads > 1 ? threads : 1), process_(getpid()) {}

ThreadPool::~ThreadPool() {
  if (process_ != getpid()) {  // a forked child: the threads don't exist here, and joining them would wait for ever
    new std::vector<std::thread>(std::move(threads_));
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  posted_.fetch_add(1, std::memory_order_relaxed);
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Under mutex_. Fewer threads than asked for (a limit of the system) is no failure: the loop is only slower.
void ThreadPool::start() {
  started_ = true;
  sigset_t all, before;  // signals are the application's; its handlers must not run on our threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    threads_.reserve(static_cast<size_t>(size_ - 1));
    for (int worker = 1; worker < size_; ++worker) threads_.emplace_back([this, worker] { work(worker); });
  } catch (const std::exception&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Under mutex_: a loop that still has items.
ThreadPool::Loop* ThreadPool::open_loop() const {
  for (Loop* loop = loops_; loop != nullptr; loop = loop->following) {
    if (loop->next.load(std::memory_order_relaxed) < loop->items) return loop;
  }
  return nullptr;
}

void ThreadPool::take_items(Loop& loop, int worker) {
  try {
    for (;;) {
      const int64_t item = loop.next.fetch_add(1, std::memory_order_relaxed);
      if (item >= loop.items) return;
      loop.call(loop.body, item, worker);
    }
  } catch (...) {
    loop.next.store(loop.items, std::memory_order_relaxed);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!loop.failure) loop.failure = std::current_exception();
  }
}

void ThreadPool::work(int worker) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
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
    const uint64_t seen = posted_.load(std::memory_order_relaxed);
    lock.unlock();
    bool changed = false;
    for (int spin = 0; spin < kSpins && !changed; ++spin) {
      pause();
      changed = posted_.load(std::memory_order_relaxed) != seen;
    }
    lock.lock();
    if (!changed) wake_.wait(lock, [&] { return stopping_ || posted_.load(std::memory_order_relaxed) != seen; });
  }
}

void ThreadPool::run_loop(int64_t items, Call call, void* body) {
  Loop loop{call, body, items};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!started_) start();
    loop.following = loops_;
    loops_ = &loop;
    posted_.fetch_add(1, std::memory_order_relaxed);
  }
  if (items > 2) {
    wake_.notify_all();
  } else {
    wake_.notify_one();
  }

  take_items(loop, 0);

  for (int spin = 0; spin < kSpins && loop.helpers.load(std::memory_order_acquire) != 0; ++spin) pause();
  std::unique_lock<std::mutex> lock(mutex_);
  for (Loop** at = &loops_; *at != nullptr; at = &(*at)->following) {
    if (*at == &loop) {
      *at = loop.following;
      break;
    }
  }
  loop.done.wait(lock, [&] { return loop.helpers.load(std::memory_order_acquire) == 0; });
  if (loop.failure) std::rethrow_exception(loop.failure);
}

}  // namespace tsr::cpu
