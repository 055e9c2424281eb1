// One call on its way through a session: made on the JavaScript thread, run there or on the session's own thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "failure.h"

namespace tessera {

class Session;

class Job {
 public:
  virtual ~Job() = default;
  /** @throws Failure */
  virtual void run(Session& session) = 0;

  /** run(), with what it throws kept in `status` and `text`. */
  void execute(Session& session) noexcept;

  uint64_t id = 0;
  /** Its address is the `cancel` of the call. */
  std::atomic<int32_t> cancel{0};
  tsr_status status = TSR_OK;
  std::string text;
  /** Set while the job is queued, so that the session outlives it. */
  std::shared_ptr<Session> session;
};

}  // namespace tessera
