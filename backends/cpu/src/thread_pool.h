// The threads of a context. A run() is a parallel loop: the calling thread takes part, sleeping workers join it, and
// items are handed out by an atomic counter, so which worker does an item is never fixed. Results must not depend on it.
//
// Several threads may call run() at once: each loop is an entry of a list that idle workers look through, and its caller
// alone can finish it. That also makes a run() inside a body safe. Threads start at the first loop that has use for
// them. After a fork() the child has none of them; its callers do all the work themselves.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

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
  /// that a body throws stops the handing out of items and is thrown again here.
  template <class F>
  void run(int64_t items, F&& body) {
    if (items <= 1 || size_ == 1) {
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

  struct Loop {
    Call call;
    void* body;
    int64_t items;
    std::atomic<int64_t> next{0};
    std::atomic<int> helpers{0};  ///< workers inside; grows only under mutex_
    std::exception_ptr failure{};  ///< under mutex_
    std::condition_variable done{};  ///< a helper has left
    Loop* following = nullptr;  ///< in the list, under mutex_
  };

  void run_loop(int64_t items, Call call, void* body);
  void take_items(Loop& loop, int worker);
  Loop* open_loop() const;
  void work(int worker);
  void start();

  const int size_;
  const int64_t process_;
  std::mutex mutex_;
  std::condition_variable wake_;
  Loop* loops_ = nullptr;  ///< under mutex_
  std::atomic<uint64_t> posted_{0};  ///< counts loops, so that a worker can see a new one without the lock
  bool started_ = false;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tsr::cpu
