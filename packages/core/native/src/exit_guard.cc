#include "exit_guard.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

namespace tessera::exit_guard {
namespace {

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::multiset<CancelFlag*> running;
  std::map<const void*, std::function<void()>> queues;
  int inside = 0;
  int armed = 0;
  bool ending = false;
};

// Never destroyed: it must outlive every static destructor.
State& state() {
  static State* const s = new State;
  return *s;
}

// A back end that doesn't look at its cancel flag can't be waited for indefinitely.
constexpr std::chrono::seconds kPatience{10};

void onExit() {
  State& s = state();
  std::unique_lock<std::mutex> lock(s.mutex);
  s.ending = true;
  for (CancelFlag* flag : s.running) flag->store(1);
  s.changed.wait_for(lock, kPatience, [&] { return s.inside == 0; });
  if (s.queues.empty()) return;
  // On a thread of its own, as waiting for a device has no time limit. It may stay behind, with its own copy.
  auto drained = std::make_shared<std::promise<void>>();
  std::thread([drained, queues = s.queues] {
    for (const auto& queue : queues) queue.second();
    drained->set_value();
  }).detach();
  drained->get_future().wait_for(kPatience);
}

[[noreturn]] void park() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

/** The state's mutex; the thread stays here for good once the process is ending. */
std::unique_lock<std::mutex> lockOrPark() {
  std::unique_lock<std::mutex> lock(state().mutex);
  if (!state().ending) return lock;
  lock.unlock();
  park();
}

}  // namespace

void arm() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.ending || s.armed >= 1000) return;
  s.armed++;
  std::atexit(onExit);
}

void addQueue(const void* owner, std::function<void()> drain) {
  const auto lock = lockOrPark();
  state().queues.emplace(owner, std::move(drain));
}

void removeQueue(const void* owner) {
  const auto lock = lockOrPark();
  state().queues.erase(owner);
}

Inside::Inside(CancelFlag* cancel) : cancel_(cancel) {
  State& s = state();
  const auto lock = lockOrPark();
  s.inside++;
  if (cancel_) s.running.insert(cancel_);
}

Inside::~Inside() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.inside--;
  if (cancel_) s.running.erase(s.running.find(cancel_));
  if (s.ending) s.changed.notify_all();
}

}  // namespace tessera::exit_guard
