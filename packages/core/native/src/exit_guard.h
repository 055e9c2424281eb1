// What happens to running work when the process ends under it (process.exit, an uncaught exception): exit() runs the
// static destructors of every loaded library while other threads go on. So before the first of them runs, an atexit
// handler sets every cancel flag, waits until no thread is inside a back end and no queue of a device holds work; threads
// that come by later stay parked.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>

namespace tessera::exit_guard {

using CancelFlag = std::atomic<int32_t>;

/** Call after a back end's code has run for the first time: handlers run last in, first out, so ours must be newer. */
void arm();

/** `drain` waits for a device's queue. Called as the process ends, unless removed before. `owner` is the key. */
void addQueue(const void* owner, std::function<void()> drain);
void removeQueue(const void* owner);

/** The calling thread is inside a back end from construction to destruction. Never returns once the process is ending. */
class Inside {
 public:
  explicit Inside(CancelFlag* cancel);
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  CancelFlag* cancel_;
};

}  // namespace tessera::exit_guard
