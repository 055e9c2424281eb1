#include "decode_launch.cuh"

namespace tsr::cuda::decode {

cudaError_t launch_q4(const Parameters& p, const Launch& launch, cudaStream_t stream) {
  return launch_format<Format::kQ4>(p, launch, stream);
}

}  // namespace tsr::cuda::decode
