// What a context does, in call order. A device without queues (CPU) is given a thread of its own that runs one call at a
// time, so that JavaScript never waits; a device with queues is called from the JavaScript thread, and the thread here
// only waits for its events.
//
// A thread of our own rather than libuv's pool: a long call must not keep a worker of that pool from files and DNS,
// process.exit waits for that pool, and an ending worker waits for it before any cleanup hook could cancel the call.
#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device.h"
#include "job.h"
#include "port.h"

namespace tessera {

/** What must stay until something is done. */
using Kept = std::vector<std::shared_ptr<void>>;

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<Device> device, std::shared_ptr<Port> port);

  Device& device() { return *device_; }
  const std::shared_ptr<Device>& deviceHandle() { return device_; }

  // ---- on the JavaScript thread

  /** Nothing queued, running or waiting to be settled: a call made now may run at once. */
  bool idle() const { return outstanding_ == 0; }
  /** @return the id that `settle` will be called with */
  uint64_t enqueue(std::unique_ptr<Job> job);
  /** @return true if it hadn't started: it never will, and `settle` won't be called */
  bool cancel(uint64_t id);
  void settled() { outstanding_--; }
  /** Lets what is queued finish, then the thread end. */
  void close();
  /** The environment ends: drops what is queued, cancels what runs, waits for it. */
  void halt();

  /** Work was given to a device with queues. */
  void submitted() { submitted_++; }
  /** Lets go of a buffer or graph once the work submitted so far no longer uses it. */
  void retire(std::shared_ptr<void> used);
  /** A job that waits for the work submitted so far, and keeps what that work uses until then. @return its id */
  uint64_t enqueueWait(Kept kept);
  /** Work was submitted that isn't known to be done. */
  bool inFlight() const { return device_->async() && reached_.load() < submitted_; }

  /** While a graph is recorded, what its calls use belongs to the graph. */
  void beginCapture();
  Kept endCapture();
  bool capturing() const { return capture_.has_value(); }
  void captured(const std::vector<std::shared_ptr<Buffer>>& used);

  // ---- by the call that runs, one at a time

  /** Scratch of at least `bytes`, kept for the next call; contents undefined. */
  void* workspace(uint64_t bytes);
  void releaseLargeWorkspace();

  /** A failure of a call that nobody waits for (write): told by the next read or synchronize. */
  void keepFault(Failure fault);
  void throwFault();

  /** Work submitted up to `mark` is done. */
  void reached(uint64_t mark) { reached_.store(mark); }

 private:
  static void loop(std::shared_ptr<Session> self);
  void start();

  std::shared_ptr<Device> device_;
  std::shared_ptr<Port> port_;
  uint64_t outstanding_ = 0;
  uint64_t submitted_ = 0;
  std::atomic<uint64_t> reached_{0};
  std::optional<Kept> capture_;
  std::shared_ptr<Buffer> workspace_;
  std::optional<Failure> fault_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> queue_;
  Job* running_ = nullptr;
  bool started_ = false;
  bool closing_ = false;
};

}  // namespace tessera
