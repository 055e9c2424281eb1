// What the kernel of device_mask.cpp does, cell by cell, with the parameters that it is launched with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

inline void play_mask_rows(unsigned count, void** parameters) {
  const auto number = [&](int i) { return *static_cast<uint32_t*>(parameters[i]); };
  const auto stride = [&](int i) { return *static_cast<uint64_t*>(parameters[i]); };
  const auto* cells = static_cast<const char*>(*static_cast<void**>(parameters[0]));
  auto* rows = static_cast<uint32_t*>(*static_cast<void**>(parameters[1]));
  const uint32_t keys = number(2), queries = number(3), heads = number(4);
  for (uint32_t row = 0; row < count; row++) {
    const char* at =
        cells + row % queries * stride(5) + row / queries % heads * stride(6) + row / queries / heads * stride(7);
    for (uint32_t j = 0; j < keys; j++) {
      uint16_t cell;
      std::memcpy(&cell, at + 2 * j, 2);
      if (cell == 0xfc00) continue;
      uint32_t* known = rows + 4 * row;
      known[0] = std::max(known[0], keys - j);
      known[1] = std::max(known[1], j + 1);
      known[2] |= cell & 0x7fffu;
      known[3]++;
    }
  }
}
