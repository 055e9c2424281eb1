// What the CPU back end asks of the operating system: system_posix.cpp and system_windows.cpp answer.
#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace tsr::cpu::system {

/// Processors that the scheduler gives this process, and no more than a container's quota pays for; at least 1.
int processors();

/// Bytes of memory that this process may use; 0 if the system doesn't say.
uint64_t memory_bytes();

/// Bytes of the L2 cache; 0 if the system doesn't say.
int64_t l2_bytes();

/// The processor as the system calls it; empty if it doesn't say.
std::string processor_name();

int64_t process_id();

/// Gives the rest of the time slice to whoever waits for this processor.
void yield();

/// `bytes` at an address for any vector, in huge pages where that helps; nullptr if there are no more. For release().
void* allocate(uint64_t bytes);
void release(void* data);

/// Threads started while one of these lives get none of the application's signals: its handlers must not run on ours.
class NoSignals {
 public:
  NoSignals();
  ~NoSignals();
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  struct Before;
  Before* const before_;
};

/// The processor that the calling thread is on; -1 if the system doesn't say, or threads can't be kept off it.
int this_processor();

/// Lets the threads run on every processor of the calling thread but `processor`, unless that is its only one.
void keep_off(int processor, std::vector<std::thread>& threads);

}  // namespace tsr::cpu::system
