// The functions behind the table of backend.cpp.
#pragma once

#include "tessera/tessera.h"

namespace tsr::hip::host {
#include "tessera/common/backend_functions.inc.h"
}  // namespace tsr::hip::host
