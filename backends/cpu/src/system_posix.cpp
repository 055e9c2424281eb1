#ifndef _WIN32
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "system.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tsr::cpu::system {
namespace {

constexpr uint64_t kAlignment = 64;  // a cache line, and the widest vector
constexpr uint64_t kHugePage = 2 << 20;

}  // namespace

int processors() {
  int count = 0;
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
#endif
  if (count < 1) count = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));  // more than 1,024 of them
  std::ifstream limit("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (limit >> quota >> period && quota != "max" && period > 0) {
    const double paid = std::atof(quota.c_str()) / period;
    if (paid > 0 && paid < count) count = static_cast<int>(paid) + (paid > static_cast<int>(paid) ? 1 : 0);
  }
  return count < 1 ? 1 : count;
}

uint64_t memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  uint64_t bytes = pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page) : 0;
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  uint64_t allowed = 0;
  if (limit >> allowed && allowed > 0 && (bytes == 0 || allowed < bytes)) bytes = allowed;
  return bytes;
}

int64_t l2_bytes() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  return sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
  return 0;
#endif
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos && line.compare(0, 10, "model name") == 0) return line.substr(colon + 1);
  }
  return {};
}

int64_t process_id() { return getpid(); }

void yield() { sched_yield(); }

// Rows of one head lie a page or more apart, so that nearly each costs a search of the page tables: in huge pages it doesn't.
// Only where a whole one fits in, so that no more memory is taken than was asked for. The system may have none.
void* allocate(uint64_t bytes) {
  const uint64_t alignment = bytes < kHugePage ? kAlignment : kHugePage;
  const uint64_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* const data = std::aligned_alloc(alignment, rounded ? rounded : alignment);
#if defined(__linux__)
  if (data != nullptr && bytes >= kHugePage) madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return data;
}

void release(void* data) { std::free(data); }

struct NoSignals::Before {
  sigset_t mask;
};

NoSignals::NoSignals() : before_(new Before) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_->mask);
}

NoSignals::~NoSignals() {
  pthread_sigmask(SIG_SETMASK, &before_->mask, nullptr);
  delete before_;
}

#if defined(__linux__)
int this_processor() { return sched_getcpu(); }

void keep_off(int processor, std::vector<std::thread>& threads) {
  cpu_set_t others;
  if (sched_getaffinity(0, sizeof others, &others) != 0) return;
  CPU_CLR(processor, &others);
  if (CPU_COUNT(&others) == 0) return;
  for (std::thread& thread : threads) pthread_setaffinity_np(thread.native_handle(), sizeof others, &others);
}
#else
int this_processor() { return -1; }
void keep_off(int, std::vector<std::thread>&) {}
#endif

}  // namespace tsr::cpu::system
#endif
