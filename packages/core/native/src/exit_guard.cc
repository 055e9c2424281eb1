#include "exit_guard.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

namespace tessera::exit_guard {
namespace {

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::multiset<CancelFlag*> running;
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
}

[[noreturn]] void park() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace

void arm() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.ending || s.armed >= 1000) return;
  s.armed++;
  std::atexit(onExit);
}

Inside::Inside(CancelFlag* cancel) : cancel_(cancel) {
  State& s = state();
  std::unique_lock<std::mutex> lock(s.mutex);
  if (s.ending) {
    lock.unlock();
    park();
  }
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
