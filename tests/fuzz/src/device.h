// The back end under test: its library, a few contexts, and the memory of a problem where the device wants it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "append.h"
#include "merge.h"
#include "problem.h"

namespace fuzz {

class Device {
 public:
  struct Outcome {
    tsr_status status = TSR_INTERNAL;
    std::string text;     ///< of the back end, if it declined
    std::string trouble;  ///< what it must not have done; empty if nothing
    std::string kernel;   ///< what ran, by `explain`
    int32_t splits = 0;
  };

  ~Device();
  /// 0, or the exit code: 2 for a library that isn't a back end, 77 for one without a device.
  int open(const char* library, std::string* trouble);

  const std::string& name() const { return name_; }
  /// The device computes in host memory.
  bool host_memory() const { return host_memory_; }
  /// One that may decline nothing when the choice of the kernel is free.
  bool complete() const { return name_ == "cpu"; }
  const std::vector<std::string>& kernels() const { return kernels_; }
  /// Of those: it takes the smallest numbers for 0 (TSR_KERNEL_FLUSHES).
  bool flushes(const std::string& kernel) const { return flushing_.count(kernel) != 0; }

  /// Brings the tensors of a call to the device, inputs with what they hold; to a context that `seed` chooses.
  void place(uint64_t seed, const std::vector<Tensor*>& inputs, const std::vector<Tensor*>& outputs);
  /// Each brings the outputs there, calls, and brings them back.
  Outcome attend(Problem& p, const std::string& kernel, int32_t splits);
  Outcome append(Append& a);
  Outcome merge(Merge& m);
  /// Brings a tensor's memory back. False, and no more, if that fails.
  bool fetch(Tensor& t);
  void release();

 private:
  uint8_t* base_of(Tensor& t);
  bool send(Tensor& t);
  template <class Call>
  Outcome run(const std::vector<Tensor*>& outputs, Call&& call);

  const tsr_backend* backend_ = nullptr;
  std::vector<tsr_context*> contexts_;  ///< of different numbers of threads, taken by turns
  tsr_context* context_ = nullptr;
  std::string name_;
  bool host_memory_ = true;
  std::vector<std::string> kernels_;
  std::set<std::string> flushing_;
  std::map<Tensor*, tsr_buffer*> buffers_;
};

}  // namespace fuzz
