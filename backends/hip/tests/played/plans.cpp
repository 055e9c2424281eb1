// Plans and launches of kernels that the host plays (kernels.cpp), in place of those of kernels-hip.
#include "kernels.h"

#include <cstring>

namespace tsr::hip {
namespace {

constexpr uint32_t kThreads = 128;

Plan plan_of(int32_t splits) {
  Plan plan;
  plan.tile_q = plan.tile_k = 64;
  plan.threads = kThreads;
  plan.splits = splits > 0 ? splits : 1;
  plan.workspace_bytes = plan.splits > 1 ? 4096 : 0;
  return plan;
}

Launch& next(Launches* launches, const char* kernel, uint64_t blocks) {
  launches->failed = launches->failed || blocks * kThreads > UINT32_MAX;
  Launch& launch = launches->of[launches->count++];
  launch.kernel = kernel;
  launch.blocks = static_cast<uint32_t>(blocks);
  launch.threads = kThreads;
  return launch;
}

void launch_attention(const Attention& a, const Plan& plan, const char* kernel, Launches* launches) {
  const uint64_t tiles = static_cast<uint64_t>((a.max_queries + plan.tile_q - 1) / plan.tile_q);
  const uint64_t blocks = static_cast<uint64_t>(a.batch) * static_cast<uint64_t>(a.heads) * tiles;
  Launch& launch = next(launches, kernel, blocks > 0 ? blocks : 1);
  launch.argument_bytes = sizeof(AttentionArguments);
  launch.arguments.attention = {a, {}, nullptr};
}

}  // namespace

bool set_architecture(const char* name, Limits* limits) {
  limits->wave = std::strncmp(name, "gfx9", 4) == 0 ? 64 : 32;
  limits->matrix_f16 = limits->matrix_bf16 = std::strcmp(name, "gfx1030") != 0;
  limits->matrix_max_dim = limits->blocks_max_dim = 256;
  return true;
}
Plan plan_plain(const Attention& a, const Limits&) { return plan_of(a.num_splits); }
Plan plan_matrix(const Attention&, const Limits&) { return plan_of(1); }
Plan plan_decode(const Attention& a, const Limits&) { return plan_of(a.num_splits); }
Plan plan_pipeline(const Attention&, const Limits&) { return plan_of(1); }
void launch_plain(const Attention& a, const Plan& plan, void*, Launches* launches) {
  launch_attention(a, plan, "attention_plain", launches);
}
void launch_matrix(const Attention& a, const Plan& plan, void*, Launches* launches) {
  launch_attention(a, plan, "attention_matrix", launches);
}
void launch_decode(const Attention& a, const Plan& plan, void*, Launches* launches) {
  launch_attention(a, plan, "attention_plain", launches);
}
void launch_pipeline(const Attention& a, const Plan& plan, void*, Launches* launches) {
  launch_attention(a, plan, "attention_matrix", launches);
}
void launch_append(const Append& append, Launches* launches) {
  Launch& launch = next(launches, "append", 1);
  launch.argument_bytes = sizeof(AppendArguments);
  launch.arguments.append = {append, 0};
}
void launch_merge(const Merge& merge, Launches* launches) {
  Launch& launch = next(launches, "merge", 1);
  launch.argument_bytes = sizeof(Merge);
  launch.arguments.merge = merge;
}

}  // namespace tsr::hip
