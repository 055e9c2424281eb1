// The library that a playing runtime loads: runs a kernel of an architecture by name.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

#include "architecture.h"
#include "emulator.h"

// TSR_EACH(X), X(name) for each architecture that was compiled, comes from the build.
#define TSR_DECLARE(name) extern const tsr::emulation::Architecture kArchitecture_##name;
TSR_EACH(TSR_DECLARE)

namespace {

#define TSR_POINTER(name) &kArchitecture_##name,
const tsr::emulation::Architecture* const kArchitectures[] = {TSR_EACH(TSR_POINTER)};

std::mutex one_at_a_time;

/// For run.mjs, which wants every kernel to have run: their names, and of each the first launch, added to the file that
/// TSR_EMULATED_RAN names.
void tell_of(const tsr::emulation::Architecture& a, const char* kernel) {
  static std::set<const void*>& told = *new std::set<const void*>;
  const char* const path = std::getenv("TSR_EMULATED_RAN");
  if (path == nullptr) return;
  const bool first = told.insert(&a).second;
  if (!told.insert(kernel).second) return;
  std::FILE* const file = std::fopen(path, "a");
  if (file == nullptr) return;
  if (first) {
    for (size_t i = 0; i < a.count; ++i) std::fprintf(file, "has %s\n", a.kernels[i].name);
  }
  std::fprintf(file, "ran %s\n", kernel);
  std::fclose(file);
}

thread_local char last_failure[512];

}  // namespace

/// NULL if all went well, else what went wrong; valid until this thread's next call. `parameters` as hipModuleLaunchKernel has
/// them: the address of each argument.
extern "C" __attribute__((visibility("default"))) const char* tsr_emulated_launch(const char* architecture,
                                                                                  const char* kernel, unsigned blocks,
                                                                                  unsigned threads, void** parameters) {
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  for (const tsr::emulation::Architecture* a : kArchitectures) {
    if (std::strcmp(a->name, architecture) != 0) continue;
    for (size_t i = 0; i < a->count; ++i) {
      if (std::strcmp(a->kernels[i].name, kernel) != 0) continue;
      try {
        tell_of(*a, a->kernels[i].name);
        tsr::emulation::run(a->wave, blocks, threads, [&] { a->kernels[i].call(parameters[0]); });
        return nullptr;
      } catch (const tsr::emulation::Failure& failure) {
        std::snprintf(last_failure, sizeof last_failure, "%s on %s: %s", kernel, architecture, failure.text);
        return last_failure;
      }
    }
    std::snprintf(last_failure, sizeof last_failure, "%s has no kernel %s", architecture, kernel);
    return last_failure;
  }
  std::snprintf(last_failure, sizeof last_failure, "no architecture %s", architecture);
  return last_failure;
}
