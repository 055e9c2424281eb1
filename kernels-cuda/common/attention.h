// What the kernels are told, in their namespace.
#pragma once

#include "tessera/common/device_problem.h"

namespace tsr::cuda {

using namespace tsr::device;

}  // namespace tsr::cuda
