#include "instantiate.cuh"

namespace tsr::cuda::sm90 {

InstanceList instances_f16() { return {std::begin(kInstances<__half>), std::end(kInstances<__half>)}; }

}  // namespace tsr::cuda::sm90
