// What GPU kernels are told, computed by loops in double on the host: what a back end hands over is right if these results
// are. For tests of host sides, on machines without a GPU.
#pragma once

#include "tessera/common/device_problem.h"

namespace tsr::device {

void play(const Attention& attention);
void play(const Append& append);
void play(const Merge& merge);

}  // namespace tsr::device
