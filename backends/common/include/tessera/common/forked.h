// Whether this process was forked from one that had used a GPU's driver: its threads, locks and mappings stay with the parent, and
// a call of it fails, hangs or does worse.
#pragma once

#include <pthread.h>

#include <atomic>
#include <string>

namespace tsr {

inline std::atomic<bool> was_forked{false};

/// Before the driver is used: children forked from then on are told by forked().
inline void watch_forks() {
  [[maybe_unused]] static const int watching =
      pthread_atfork(nullptr, nullptr, [] { was_forked.store(true, std::memory_order_relaxed); });
}

/// Asked by every call: a flag, as asking the system for the process would take as long as the call.
inline bool forked() { return was_forked.load(std::memory_order_relaxed); }

inline std::string forked_reason(const char* driver) {
  return std::string("this process was forked from one that had used ") + driver + ", which doesn't work in its child";
}
constexpr const char* kForkedFix = "fork before the first use, or start another program in the child (exec)";

}  // namespace tsr
