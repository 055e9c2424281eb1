// The functions behind the table of backend.cpp.
#pragma once

#include "tessera/tessera.h"

namespace tsr::cpu {
#include "tessera/common/backend_functions.inc.h"
}  // namespace tsr::cpu
