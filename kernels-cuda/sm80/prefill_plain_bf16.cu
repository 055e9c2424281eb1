#include "instantiate.cuh"

namespace tsr::cuda::sm80 {

InstanceList plain_bf16() { return {std::begin(kPlain<__nv_bfloat16>), std::end(kPlain<__nv_bfloat16>)}; }

}  // namespace tsr::cuda::sm80
