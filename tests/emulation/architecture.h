// What the emulator knows of an architecture: its kernels by name.
#pragma once

#include <cstddef>

namespace tsr::emulation {

struct Kernel {
  const char* name;
  void (*call)(const void* arguments);
};

struct Architecture {
  const char* name;
  int wave;
  const Kernel* kernels;
  size_t count;
};

}  // namespace tsr::emulation
