// The kernels' interface, played by the host.
#include "kernels.h"

#include <iterator>
#include <memory>
#include <utility>

#include "ladder/steps.h"
#include "played/played.h"
#include "runtime.h"

namespace tsr::cuda {
namespace {

Plan plan_of(const Attention& a, bool splits) {
  Plan plan;
  plan.tile_q = plan.tile_k = 64;
  plan.threads = 128;
  plan.splits = splits && a.num_splits > 0 ? a.num_splits : 1;
  plan.workspace_bytes = plan.splits > 1 ? 4096 : 0;
  return plan;
}

Plan plan_step(const Attention& a, const Limits&) { return plan_of(a, false); }

template <class Work>
cudaError_t launch_work(cudaStream_t stream, Work&& work) {
  const cudaError_t error = emulated::launched();
  if (error == cudaSuccess) emulated::enqueue(stream, std::forward<Work>(work));
  return error;
}

cudaError_t launch(const Attention& a, cudaStream_t stream) {
  return launch_work(stream, [a] { play(a); });
}

}  // namespace

Plan plan_simt(const Attention& a, const Limits&) { return plan_of(a, true); }
bool has_wgmma() { return true; }
Plan plan_wgmma(const Attention& a, const Limits&) { return plan_of(a, false); }
Plan plan_mma(const Attention& a, const Limits&, bool) { return plan_of(a, false); }
Plan plan_decode(const Attention& a, const Limits&) { return plan_of(a, true); }
cudaError_t launch_simt(const Attention& a, const Plan&, void*, cudaStream_t stream) { return launch(a, stream); }
cudaError_t launch_wgmma(const Attention& a, const Plan&, void*, cudaStream_t stream) { return launch(a, stream); }
cudaError_t launch_mma(const Attention& a, const Plan&, void*, cudaStream_t stream) { return launch(a, stream); }
cudaError_t launch_decode(const Attention& a, const Plan&, void*, cudaStream_t stream) { return launch(a, stream); }

LadderSteps ladder_steps() {
  static constexpr LadderStep kSteps[] = {{"ladder-64x64", "played", plan_step, 1 << 14},
                                          {"ladder-256x128", "played", plan_step, 1 << 30}};
  return {std::begin(kSteps), std::end(kSteps)};
}
cudaError_t launch_ladder(const Attention& a, const Plan&, void*, cudaStream_t stream) { return launch(a, stream); }

cudaError_t launch_append(const Append& p, cudaStream_t stream) {
  return launch_work(stream, [p] { play(p); });
}
cudaError_t launch_merge(const Merge& m, cudaStream_t stream) {
  return launch_work(stream, [shared = std::make_shared<const Merge>(m)] { play(*shared); });
}

}  // namespace tsr::cuda
