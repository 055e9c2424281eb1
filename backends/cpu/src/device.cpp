#include "device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "system.h"
#include "tessera/common/text.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace tsr::cpu {
namespace {

#if defined(__x86_64__)
struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Leaf cpuid(unsigned leaf, unsigned sub = 0) {
  Leaf r;
  if (!__get_cpuid_count(leaf, sub, &r.a, &r.b, &r.c, &r.d)) return Leaf{};
  return r;
}

// vdpbf16ps of 512 bits: AMD's cores start as many of them as fp32 multiply-adds, and each does twice the work; Intel's
// start half as many, or fewer. No feature bit tells, so the vendor has to.
bool made_by_amd() {
  const Leaf zero = cpuid(0);
  char vendor[12];
  std::memcpy(vendor, &zero.b, 4);
  std::memcpy(vendor + 4, &zero.d, 4);
  std::memcpy(vendor + 8, &zero.c, 4);
  return std::memcmp(vendor, "AuthenticAMD", sizeof vendor) == 0;
}

#if defined(__linux__)
constexpr unsigned kTileData = 18;  // of XCR0
#endif

// Whether Linux gives a process the tiles' registers when it asks for them; asks for nothing.
bool system_has_tiles() {
#if defined(__linux__)
  constexpr long kSupported = 0x1021;  // ARCH_GET_XCOMP_SUPP
  uint64_t features = 0;
  return syscall(SYS_arch_prctl, kSupported, &features) == 0 && ((features >> kTileData) & 1u) != 0;
#else
  return false;
#endif
}

// A set may be used only if the system saves its registers at a context switch: XCR0 says which it does.
void probe_instructions(Device* device) {
  const Leaf one = cpuid(1), seven = cpuid(7);
  const auto has = [](unsigned word, int bit) { return ((word >> bit) & 1u) != 0; };
  uint64_t saved = 0;
  if (has(one.c, 27)) {
    unsigned low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    saved = (static_cast<uint64_t>(high) << 32) | low;
  }
  const bool ymm = (saved & 0x6) == 0x6;
  const bool zmm = (saved & 0xe6) == 0xe6;
  device->avx2 = ymm && has(one.c, 28) && has(one.c, 12) && has(one.c, 29) && has(seven.b, 5);
  device->avx512 = device->avx2 && zmm && has(seven.b, 16) && has(seven.b, 30) && has(seven.b, 31) && has(seven.b, 17);
  device->avx512_bf16 = device->avx512 && has(cpuid(7, 1).a, 5);
  device->avx512_vnni = device->avx512 && has(seven.c, 11);
  device->avx_vnni = device->avx2 && has(cpuid(7, 1).a, 4);
  device->fast_pairs = device->avx512_bf16 && made_by_amd();
  const bool tiles = has(seven.d, 22) && has(seven.d, 24) && (saved & 0x60000) == 0x60000;
  device->amx = device->avx512_bf16 && tiles && system_has_tiles();
  device->arch = device->amx      ? "x86-64 amx"
                 : device->avx512 ? "x86-64 avx512"
                 : device->avx2   ? "x86-64 avx2"
                                  : "x86-64";

  char brand[49] = {};
  if (__get_cpuid_max(0x80000000u, nullptr) >= 0x80000004u) {
    for (unsigned i = 0; i < 3; ++i) {
      const Leaf part = cpuid(0x80000002u + i);
      std::memcpy(brand + i * 16, &part, 16);
    }
  }
  device->name = brand;
}
#elif defined(__aarch64__)
void probe_instructions(Device* device) {
  device->neon = true;
#if defined(__linux__)
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16
  device->neon_bf16 = (getauxval(AT_HWCAP2) & kBf16) != 0;
  constexpr unsigned long kDotprod = 1ul << 20;  // HWCAP_ASIMDDP
  device->neon_dotprod = (getauxval(AT_HWCAP) & kDotprod) != 0;
#endif
  device->arch = "aarch64 neon";
}
#else
void probe_instructions(Device* device) { device->arch = "portable"; }
#endif

std::string trimmed(const std::string& name) {
  const size_t first = name.find_first_not_of(" \t"), last = name.find_last_not_of(" \t");
  return first == std::string::npos ? std::string() : name.substr(first, last - first + 1);
}

// How many numbers a list such as "0-3,8" has.
int64_t listed(std::istream& list) {
  int64_t count = 0;
  long first = 0;
  while (list >> first) {
    long last = first;
    if (list.peek() == '-') {
      list.get();
      list >> last;
    }
    count += last >= first ? last - first + 1 : 1;
    if (list.get() != ',') break;
  }
  return count > 0 ? count : 1;
}

}  // namespace

int64_t l2_share(const std::string& folder) {
  for (int index = 0; index < 8; index++) {
    const std::string cache = text(folder, "/index", index);
    std::ifstream level_file(cache + "/level"), size_file(cache + "/size"), cores(cache + "/shared_cpu_list");
    int level = 0;
    int64_t size = 0;
    char unit = 0;
    if (!(level_file >> level) || level != 2 || !(size_file >> size)) continue;
    size_file >> unit;
    return size * (unit == 'K' ? 1 << 10 : unit == 'M' ? 1 << 20 : 1) / listed(cores);
  }
  return 0;
}

Device probe_device() {
  Device device;
  probe_instructions(&device);
  device.name = trimmed(device.name);
  if (device.name.empty()) device.name = trimmed(system::processor_name());
  if (device.name.empty()) device.name = "CPU";
  device.cores = std::min(system::processors(), kMaxThreads);
  device.memory_bytes = system::memory_bytes();
  // Of one fixed core, since results depend on it: on a processor with cores of two kinds a thread would else meet either.
  int64_t l2 = l2_share("/sys/devices/system/cpu/cpu0/cache");
  if (l2 <= 0) l2 = system::l2_bytes();
  if (l2 > 0) device.l2_bytes = l2;
  return device;
}

bool runs(const Device& device, const char* isa) {
  if (std::strcmp(isa, "avx2") == 0 || std::strcmp(isa, "avx2-int8") == 0) return device.avx2;
  if (std::strcmp(isa, "avx-vnni") == 0) return device.avx_vnni;
  if (std::strcmp(isa, "avx512-vnni") == 0) return device.avx512_vnni;
  if (std::strcmp(isa, "avx512") == 0) return device.avx512;
  if (std::strcmp(isa, "avx512-bf16") == 0) return device.avx512_bf16;
  if (std::strcmp(isa, "amx") == 0) return device.amx;
  if (std::strcmp(isa, "neon") == 0) return device.neon;
  if (std::strcmp(isa, "neon-bf16") == 0) return device.neon_bf16;
  if (std::strcmp(isa, "neon-dotprod") == 0) return device.neon_dotprod;
  return std::strcmp(isa, "portable") == 0;
}

bool ask_for(const char* isa) {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  if (std::strcmp(isa, "amx") == 0) return syscall(SYS_arch_prctl, kRequestPermission, long{kTileData}) == 0;
#endif
  static_cast<void>(isa);
  return true;
}

Verdict threads_of_environment(int* threads) {
  *threads = 0;
  const char* const value = std::getenv("TESSERA_THREADS");
  if (value == nullptr || *value == '\0') return {};
  char* end = nullptr;
  const long number = std::strtol(value, &end, 10);
  if (*end != '\0' || number < 1 || number > kMaxThreads) {
    return invalid("TESSERA_THREADS: is \"", std::string(value).substr(0, 100), "\", must be a number from 1 to ",
                   kMaxThreads);
  }
  *threads = static_cast<int>(number);
  return {};
}

}  // namespace tsr::cpu
