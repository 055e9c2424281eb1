#include "instantiate.cuh"

namespace tsr::cuda::sm80 {

InstanceList options_f16() { return {std::begin(kOptions<__half>), std::end(kOptions<__half>)}; }

}  // namespace tsr::cuda::sm80
