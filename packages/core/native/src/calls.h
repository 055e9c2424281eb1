// What runs: the contract's calls with their workspace, and how long they will take.
#pragma once
#include <memory>

#include "arguments.h"
#include "job.h"

namespace tessera {

enum class Call {
  attention,
  append,
  decode,
  merge
};

class CallJob : public Job {
 public:
  explicit CallJob(Call call) : call_(call) {}
  void run(Session& session) override;

  Arguments arguments;

  /** Ready for another call. */
  void reuse(Call call) {
    call_ = call;
    arguments.clear();
  }

  /**
   * True if the call takes less time than a thread needs to wake up (about 10 microseconds on a slow core), so that it
   * may run on the JavaScript thread.
   */
  bool tiny() const;

 private:
  Call call_;
};

/** Bytes that a memcpy moves in that time. */
constexpr uint64_t kTinyCopy = 64u << 10;

}  // namespace tessera
