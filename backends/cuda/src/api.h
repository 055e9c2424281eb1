// The functions behind the table of backend.cpp.
#pragma once

#include "tessera/tessera.h"

namespace tsr::cuda::host {
#include "tessera/common/backend_functions.inc.h"
}  // namespace tsr::cuda::host
