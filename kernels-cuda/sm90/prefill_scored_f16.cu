#include "instantiate.cuh"

namespace tsr::cuda::sm90 {

InstanceList scored_f16() { return {std::begin(kInstances<__half, true>), std::end(kInstances<__half, true>)}; }

}  // namespace tsr::cuda::sm90
