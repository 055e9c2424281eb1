#include "instantiate.cuh"

namespace tsr::cuda::sm80 {

InstanceList options_bf16() { return {std::begin(kOptions<__nv_bfloat16>), std::end(kOptions<__nv_bfloat16>)}; }

}  // namespace tsr::cuda::sm80
