// A library for TSR_EMULATED_KERNELS: the kernels of plans.cpp, each launch all of the problem.
#include <cstring>

#include "kernels.h"
#include "played/played.h"

using namespace tsr::hip;

extern "C" __attribute__((visibility("default"))) const char* tsr_emulated_launch(const char*, const char* kernel,
                                                                                  unsigned, unsigned,
                                                                                  void** parameters) {
  const auto is = [&](const char* name) { return std::strcmp(kernel, name) == 0; };
  if (is("attention_plain") || is("attention_matrix")) {
    const tsr::device::Attention& a = static_cast<const AttentionArguments*>(parameters[0])->attention;
    if (reinterpret_cast<uintptr_t>(a.k.data) == 0x10000) return "an address that isn't memory";
    tsr::device::play(a);
  } else if (is("append")) {
    tsr::device::play(static_cast<const AppendArguments*>(parameters[0])->append);
  } else if (is("merge")) {
    tsr::device::play(*static_cast<const Merge*>(parameters[0]));
  } else {
    return "no such kernel";
  }
  return nullptr;
}
