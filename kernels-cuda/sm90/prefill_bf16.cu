#include "instantiate.cuh"

namespace tsr::cuda::sm90 {

InstanceList instances_bf16() { return {std::begin(kInstances<__nv_bfloat16>), std::end(kInstances<__nv_bfloat16>)}; }

}  // namespace tsr::cuda::sm90
