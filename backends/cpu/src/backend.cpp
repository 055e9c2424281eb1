// The table, and the one exported symbol.
#include "api.h"

namespace tsr::cpu {
namespace {

constexpr const char* kName = "cpu";
#include "tessera/common/backend_table.inc.h"

}  // namespace
}  // namespace tsr::cpu

extern "C" const tsr_backend* tsr_backend_entry(uint32_t abi_version) {
  return abi_version == TSR_ABI_VERSION ? &tsr::cpu::kBackend : nullptr;
}
