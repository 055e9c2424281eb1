#include "instantiate.cuh"

namespace tsr::cuda::sm90 {

InstanceList plain_bf16() {
  return {std::begin(kInstances<__nv_bfloat16, false>), std::end(kInstances<__nv_bfloat16, false>)};
}

}  // namespace tsr::cuda::sm90
