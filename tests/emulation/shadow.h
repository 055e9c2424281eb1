// LDS and what is known of each of its words: who wrote it last, who read it since, when.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tsr::emulation {

constexpr size_t kLdsBytes =
    160 * 1024;               // of the largest architecture; kernels say less, and arrays are checked on their own
constexpr int kWord = 2;      // bytes of an entry
constexpr int kTogether = 8;  // words of a group: the largest access, aligned

/// Side by side, so that an access of up to 16 bytes is checked in a few vector operations.
struct Shadow {
  uint32_t write_time[kTogether];  // 0: never
  uint32_t read_time[kTogether];   // 0: not since the write
  int16_t writer[kTogether];       // threads
  int16_t reader[kTogether];       // or kMany
};
constexpr int16_t kMany = -1;

struct Lds {
  alignas(64) unsigned char bytes[kLdsBytes];
  Shadow shadow[kLdsBytes / kWord / kTogether];
  size_t used = 0;  // of the running block
};

}  // namespace tsr::emulation
