#include "instantiate.cuh"

namespace tsr::cuda::sm90 {

InstanceList scored_bf16() {
  return {std::begin(kInstances<__nv_bfloat16, true>), std::end(kInstances<__nv_bfloat16, true>)};
}

}  // namespace tsr::cuda::sm90
