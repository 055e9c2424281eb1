// Ran under Wine only (docs/never-run.md).
#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <malloc.h>

#include "system.h"

namespace tsr::cpu::system {

int processors() {
  DWORD_PTR ours = 0, all = 0;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &ours, &all)) ours = 0;
  int count = 0;
  for (; ours != 0; ours &= ours - 1) ++count;
  return count < 1 ? 1 : count;
}

uint64_t memory_bytes() {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) ? status.ullTotalPhys : 0;
}

int64_t l2_bytes() { return 0; }

// Only asked of processors that don't say it themselves.
std::string processor_name() { return {}; }

int64_t process_id() { return static_cast<int64_t>(GetCurrentProcessId()); }

void yield() { SwitchToThread(); }

void* allocate(uint64_t bytes) { return _aligned_malloc(bytes ? bytes : 1, 64); }
void release(void* data) { _aligned_free(data); }

// No thread is interrupted by signals here.
struct NoSignals::Before {};
NoSignals::NoSignals() : before_(nullptr) {}
NoSignals::~NoSignals() { static_cast<void>(before_); }

int this_processor() { return -1; }
void keep_off(int, std::vector<std::thread>&) {}

}  // namespace tsr::cpu::system
#endif
