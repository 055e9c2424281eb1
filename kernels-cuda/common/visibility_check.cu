// Proves that the visibility header is device code. Launched nowhere; `npm run build:gpu` compiles it.
#include "../../backends/common/tests/visibility_device.h"

__global__ void visibility_check(tsr::Visibility visibility, tsr::Span queries, tsr::Span keys, int64_t j,
                                 int64_t* out) {
  tsr::check::exercise(visibility, queries, keys, j, out);
}
