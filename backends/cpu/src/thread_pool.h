// The threads of a context. A run() is a parallel loop: the calling thread takes part, sleeping workers join it, and
// items are handed out by an atomic counter, so which worker does an item is never fixed. Results must not depend on it.
//
// Several threads may call run() at once: each loop is an entry of a list that idle workers look through, and its caller
// alone can finish it. That also makes a run() inside a body safe. Threads start at the first loop that has use for
// them. After a fork() the child has none of them, and perhaps locks that no one will open: there, callers do all the
// work themselves and nothing of the shared state is touched.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tsr::cpu {

class ThreadPool {
 public:
  /// `threads` counts the caller: 1 means no threads at all.
  explicit ThreadPool(int threads);
  /// Joins the workers. No run() may be in progress.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Workers a loop can have, the caller included.
  int size() const { return size_; }

  /// Calls body(item, worker) for every item of [0, items), from up to size() threads; returns when all are done.
  /// 0 <= worker < size(), and no two threads of one run() share a worker number (different runs do). The first exception
  /// that a body throws stops the handing out of items and is thrown again here. With `alone` the caller does it all: for
  /// work that is done before another thread has woken.
  template <class F>
  void run(int64_t items, F&& body, bool alone = false) {
    if (items <= 1 || size_ == 1 || alone) {
      for (int64_t item = 0; item < items; ++item) body(item, 0);
      return;
    }
    using Body = std::remove_reference_t<F>;
    run_loop(
        items, [](void* f, int64_t item, int worker) { (*static_cast<Body*>(f))(item, worker); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void* body, int64_t item, int worker);
  struct Loop;
  struct Shared;

  void run_loop(int64_t items, Call call, void* body);

  const int size_;
  Shared* const shared_;
};

}  // namespace tsr::cpu
