#include "instantiate.cuh"

namespace tsr::cuda::sm90 {

InstanceList plain_f16() { return {std::begin(kInstances<__half, false>), std::end(kInstances<__half, false>)}; }

}  // namespace tsr::cuda::sm90
