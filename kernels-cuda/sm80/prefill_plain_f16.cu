#include "instantiate.cuh"

namespace tsr::cuda::sm80 {

InstanceList plain_f16() { return {std::begin(kPlain<__half>), std::end(kPlain<__half>)}; }

}  // namespace tsr::cuda::sm80
