#include "tessera/common/text.h"

namespace tsr {
namespace {

// A struct_size beyond this is garbage, not a caller from the future; reading that far could fault.
constexpr uint32_t kMaxStruct = 1u << 16;

}  // namespace

Verdict read_sized(const void* from, const char* name, size_t size, void* to) {
  if (from == nullptr) return invalid(name, ": is NULL");
  uint32_t given;
  std::memcpy(&given, from, sizeof given);
  if (given == 0 || given % kStructStep != 0 || given > kMaxStruct) {
    return invalid(name, ": struct_size is ", given, ", must be sizeof the struct (", size,
                   " in this version, in each a multiple of ", kStructStep, ")");
  }
  std::memcpy(to, from, given < size ? given : size);
  const auto* bytes = static_cast<const unsigned char*>(from);
  for (size_t i = size; i < given; ++i) {
    if (bytes[i] != 0) {
      return unsupported(name, ": byte ", i, " of a struct of ", given,
                         " bytes is not 0, but this back end knows only the first ", size,
                         ": it asks for something from a later version of the contract");
    }
  }
  return {};
}

}  // namespace tsr
