// The table, and the one exported symbol.
#include "api.h"

namespace tsr::hip::host {
namespace {

constexpr const char* kName = "hip";
#include "tessera/common/backend_table.inc.h"

}  // namespace
}  // namespace tsr::hip::host

extern "C" const tsr_backend* tsr_backend_entry(uint32_t abi_version) {
  return abi_version == TSR_ABI_VERSION ? &tsr::hip::host::kBackend : nullptr;
}
