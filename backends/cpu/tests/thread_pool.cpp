// The pool: every item once, no worker number twice at a time, loops in loops and from many threads, exceptions; the caller
// keeps its cores.
#include "thread_pool.h"

#include <sched.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "count.h"

namespace {

using tsr::cpu::ThreadPool;

// True if each item was done once, by a worker that no one else was at that moment.
bool loop(ThreadPool& pool, int64_t items) {
  std::vector<std::atomic<int>> done(static_cast<size_t>(items));
  std::vector<std::atomic<int>> busy(static_cast<size_t>(pool.size()));
  std::atomic<bool> good{true};
  pool.run(items, [&](int64_t item, int worker) {
    if (busy[static_cast<size_t>(worker)].fetch_add(1) != 0) good = false;
    done[static_cast<size_t>(item)]++;
    busy[static_cast<size_t>(worker)]--;
  });
  for (const auto& count : done) good = good && count == 1;
  return good;
}

}  // namespace

int main() {
  for (const int threads : {-1, 0, 1, 2, 5}) {
    ThreadPool pool(threads);
    CHECK(pool.size() == (threads > 1 ? threads : 1));
    for (const int64_t items : {-3, 0, 1, 2, 3, 7, 1000}) CHECK(items < 0 || loop(pool, items));
    bool good = true;
    for (int round = 0; round < 2000; ++round) good = good && loop(pool, round % 9);
    CHECK(good);
  }

  ThreadPool pool(4);
  std::atomic<int> inner{0};
  pool.run(10, [&](int64_t, int) { pool.run(10, [&](int64_t, int) { inner++; }); });
  CHECK(inner == 100);

  bool alone = true;
  const std::thread::id self = std::this_thread::get_id();
  pool.run(100, [&](int64_t, int worker) { alone = alone && worker == 0 && std::this_thread::get_id() == self; }, true);
  CHECK(alone);

#if defined(__linux__)
  cpu_set_t before, after;
  if (sched_getaffinity(0, sizeof before, &before) == 0) {
    CHECK(loop(pool, 50) && sched_getaffinity(0, sizeof after, &after) == 0 && CPU_EQUAL(&before, &after));
    // On one core of them all, nobody has to keep off it.
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0 && loop(pool, 50));
    CHECK(sched_setaffinity(0, sizeof before, &before) == 0 && loop(pool, 50));
  }
#endif

  std::atomic<int> bad{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 6; ++i) {
    callers.emplace_back([&, i] {
      for (int round = 0; round < 300; ++round) {
        if (!loop(pool, 1 + (round * 7 + i) % 20)) bad++;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(bad == 0);

  for (const int64_t thrower : {0, 3, 99}) {
    std::atomic<int> done{0};
    bool caught = false;
    try {
      pool.run(100, [&](int64_t item, int) {
        if (item == thrower) throw std::runtime_error("item");
        done++;
      });
    } catch (const std::runtime_error&) {
      caught = true;
    }
    CHECK(caught && done < 100);
    CHECK(loop(pool, 50));
  }
  for (int i = 0; i < 200; ++i) {  // threads that have barely begun are joined, too
    const auto brief = std::make_unique<ThreadPool>(3);
    brief->run(2, [](int64_t, int) {});
  }
  return tsr::check::finish();
}
