// What this machine is: the processor's name and instruction sets, the cores and the memory that this process may use.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/common/problem.h"

namespace tsr::cpu {

struct Device {
  std::string name;          ///< "AMD EPYC 7763"
  std::string arch;          ///< "x86-64 avx2"
  bool avx2 = false;         ///< and FMA and F16C, with the system's consent to use the registers
  bool avx512 = false;       ///< F, BW, VL and DQ, and all of the above
  bool avx512_bf16 = false;  ///< and avx512
  bool fast_pairs = false;   ///< and its dot products of bf16 pairs do more multiply-adds than fp32's
  bool amx = false;          ///< tiles and their bf16 products, and avx512_bf16
  bool avx512_vnni = false;  ///< and avx512
  bool avx_vnni = false;     ///< and avx2
  bool neon = false;
  bool neon_bf16 = false;
  bool neon_dotprod = false;
  int cores = 1;
  uint64_t memory_bytes = 0;
  int64_t l2_bytes = 1 << 20;  ///< of the L2 cache, the share of one of the cores that have it together
};

/// Looks anew at each call: affinity and limits change.
Device probe_device();

/// Reads the L2 cache's size from a folder like /sys/devices/system/cpu/cpu0/cache; 0 if that doesn't tell.
int64_t l2_share(const std::string& folder);

/// Can this processor run kernels of "portable", "avx2", ...?
bool runs(const Device& device, const char* isa);
/// Gets what a set needs of the system before it may run: for "amx" the permission to use the tiles' registers. It is the
/// process's from then on, and alternate signal stacks (sigaltstack) then have to have room for them, some 11 KB.
bool ask_for(const char* isa);

/// Most threads that a context may be asked for.
constexpr int kMaxThreads = 1024;

/// TESSERA_THREADS: threads of a context whose description leaves it open; 0 = not set.
Verdict threads_of_environment(int* threads);

}  // namespace tsr::cpu
