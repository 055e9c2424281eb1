// Building error texts, and reading and writing structs that carry their own size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

#include "tessera/common/problem.h"

namespace tsr {

inline void append_text(std::string& to, const char* text) { to += text; }
inline void append_text(std::string& to, const std::string& text) { to += text; }
template <class T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
void append_text(std::string& to, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.9g", static_cast<double>(value));
    to += digits;
  } else {
    to += std::to_string(value);
  }
}

/// The parts in one string; numbers in decimal.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::string all;
  (append_text(all, parts), ...);
  return all;
}

template <class... Parts>
Verdict invalid(const Parts&... parts) {
  return Verdict{TSR_INVALID_ARGUMENT, text(parts...)};
}
template <class... Parts>
Verdict unsupported(const Parts&... parts) {
  return Verdict{TSR_UNSUPPORTED, text(parts...)};
}

/// Returns from the calling function if `expression` is not an ok Verdict.
#define TSR_TRY(expression)                                                      \
  do {                                                                           \
    if (::tsr::Verdict verdict_ = (expression); !verdict_.ok()) return verdict_; \
  } while (false)

/// The size of every struct that a caller fills, in every version, is a multiple of this, and no member of it is larger: none is
/// ever cut in two, and a size that would is no version's.
constexpr uint32_t kStructStep = 8;

/// Copies a caller's struct of `given` bytes over our zeroed one of `size`; both begin with struct_size.
Verdict read_sized(const void* from, const char* name, size_t size, void* to);

/// Reads a struct that the caller filled: what is short reads as zero, what is beyond our knowledge has to be zero.
template <class T>
Verdict read_struct(const T* from, const char* name, T* to) {
  static_assert(sizeof(T) % kStructStep == 0, "add a reserved member");
  *to = T{};
  return read_sized(from, name, sizeof(T), to);
}

/// Fills as much of a caller's result struct as it has room for. Its struct_size stays.
template <class T>
Verdict write_struct(const T& from, const char* name, T* to) {
  if (to == nullptr) return invalid(name, ": is NULL");
  const uint32_t size = to->struct_size;
  if (size < sizeof(uint32_t))
    return invalid(name, ": struct_size is ", size, ", must be sizeof the struct (", sizeof(T), ")");
  const size_t own = sizeof(uint32_t);
  const size_t room = size < sizeof(T) ? size : sizeof(T);
  std::memcpy(reinterpret_cast<char*>(to) + own, reinterpret_cast<const char*>(&from) + own, room - own);
  return {};
}

/// Copies into a fixed array, cut if need be, always terminated.
template <size_t N>
void copy_text(char (&to)[N], const char* from) {
  std::snprintf(to, N, "%s", from);
}

}  // namespace tsr
