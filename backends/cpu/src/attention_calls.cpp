// Check, select, plan, compute: every call of the attention kind goes the same way and stops where it has its answer.
#include "api.h"
#include "append.h"
#include "context.h"
#include "merge.h"
#include "tessera/common/check.h"

namespace tsr::cpu {
namespace {

CheckOptions shapes_only() {
  CheckOptions options;
  options.shapes_only = true;
  return options;
}

// The kernel that runs a checked problem. `row` is NULL if the verdict isn't ok.
struct Choice {
  Selection selection;
  Kernel kernel{};
};

Choice choose(tsr_context& context, const Problem& problem, bool explain) {
  Choice choice;
  choice.selection = select_variant(context.rows, problem, preference, explain);
  const Variant* const row = choice.selection.row;
  const Machine machine{context.pool.size(), context.device.l2_bytes};
  if (row != nullptr) choice.kernel = kernel_of(*row, problem, machine);
  return choice;
}

// Atomically: the caller sets it from another thread.
bool cancelled(const Problem& problem) {
  return problem.cancel != nullptr && __atomic_load_n(problem.cancel, __ATOMIC_RELAXED) != 0;
}

Verdict aborted() { return {TSR_ABORTED, "cancel: was set by the caller; outputs are undefined"}; }

Verdict compute(tsr_context& context, const Problem& problem, const Kernel& kernel, void* workspace) {
  if (problem.batch == 0 || problem.heads == 0 || problem.query_rows == 0) return {};
  if (cancelled(problem)) return aborted();
  const tsr_status status = kernel.compute(problem, kernel.plan, static_cast<std::byte*>(workspace), context.pool);
  if (status == TSR_OK) return {};
  if (status == TSR_ABORTED) return aborted();
  return {status, text("the kernel ended with status ", status)};
}

Verdict plan_only(tsr_context& context, const Problem& problem, uint64_t* bytes) {
  const Choice choice = choose(context, problem, false);
  if (choice.selection.verdict.ok()) *bytes = choice.kernel.plan.workspace_bytes;
  return choice.selection.verdict;
}

void fill_explanation(const tsr_context& context, const Problem& problem, const Choice& choice, tsr_explanation* e) {
  const Plan& plan = choice.kernel.plan;
  e->family = choice.selection.row->family;
  copy_text(e->kernel, choice.selection.row->name);
  e->tile_q = plan.tile_q;
  e->tile_k = plan.tile_k;
  e->stages = 1;
  e->splits = plan.splits;
  e->threads = plan.threads;
  e->workspace_bytes = plan.workspace_bytes;
  std::string notes = text(choice.kernel.arithmetic, ", on up to ", context.pool.size(), " threads");
  if (problem.k.dtype != TSR_F32 || problem.v.dtype != TSR_F32) {
    notes += text("; k (", dtype_name(problem.k.dtype), ") and v (", dtype_name(problem.v.dtype),
                  ") are converted as they are read");
  }
  copy_text(e->notes, notes.c_str());
}

}  // namespace

int32_t kernel_count(tsr_context* context) { return context ? static_cast<int32_t>(context->rows.size()) : 0; }

tsr_status kernel_info(tsr_context* context, int32_t index, tsr_kernel_info* info) {
  return enter(context, [&]() -> Verdict {
    const auto count = static_cast<int32_t>(context->rows.size());
    if (index < 0 || index >= count) return invalid("index: is ", index, ", must be 0 to ", count - 1);
    tsr_kernel_info i{};
    describe(context->rows[static_cast<size_t>(index)], &i);
    return write_struct(i, "info", info);
  });
}

tsr_status supports(tsr_context* context, const tsr_attention_desc* desc) {
  return enter(context, [&]() -> Verdict {
    Problem problem;
    TSR_TRY(check_attention(desc, shapes_only(), &problem));
    return select_variant(context->rows, problem, preference, false).verdict;
  });
}

tsr_status explain(tsr_context* context, const tsr_attention_desc* desc, tsr_explanation* explanation) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(explanation);
    Problem problem;
    TSR_TRY(check_attention(desc, shapes_only(), &problem));
    const Choice choice = choose(*context, problem, true);
    tsr_explanation e{};
    if (choice.selection.row != nullptr) fill_explanation(*context, problem, choice, &e);
    TSR_TRY(write_explanation(choice.selection.rejections, e, explanation));
    return choice.selection.verdict;
  });
}

tsr_status attention_workspace(tsr_context* context, const tsr_attention_desc* desc, uint64_t* bytes) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(bytes);
    Problem problem;
    TSR_TRY(check_attention(desc, shapes_only(), &problem));
    return plan_only(*context, problem, bytes);
  });
}

tsr_status attention(tsr_context* context, tsr_stream*, const tsr_attention_desc* desc) {
  return enter(context, [&]() -> Verdict {
    Problem problem;
    TSR_TRY(check_attention(desc, CheckOptions{}, &problem));
    const Choice choice = choose(*context, problem, false);
    TSR_TRY(choice.selection.verdict);
    const Workspace workspace = given_workspace(desc);
    TSR_TRY(check_workspace(workspace, choice.kernel.plan.workspace_bytes));
    return compute(*context, problem, choice.kernel, workspace.data);
  });
}

tsr_status decode_workspace(tsr_context* context, const tsr_decode_desc* desc, uint64_t* bytes) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(bytes);
    DecodeProblem problem;
    TSR_TRY(check_decode(desc, shapes_only(), &problem));
    return plan_only(*context, problem.attention, bytes);
  });
}

// Everything that can be wrong is found before the append writes its first byte.
tsr_status decode(tsr_context* context, tsr_stream*, const tsr_decode_desc* desc) {
  return enter(context, [&]() -> Verdict {
    DecodeProblem problem;
    TSR_TRY(check_decode(desc, CheckOptions{}, &problem));
    const Choice choice = choose(*context, problem.attention, false);
    TSR_TRY(choice.selection.verdict);
    const Workspace workspace = given_workspace(desc->attention);
    TSR_TRY(check_workspace(workspace, choice.kernel.plan.workspace_bytes));
    if (cancelled(problem.attention)) return aborted();
    if (problem.appends) append(problem.append, context->pool);
    return compute(*context, problem.attention, choice.kernel, workspace.data);
  });
}

tsr_status kv_append(tsr_context* context, tsr_stream*, const tsr_append_desc* desc) {
  return enter(context, [&]() -> Verdict {
    AppendProblem problem;
    TSR_TRY(check_append(desc, CheckOptions{}, &problem));
    append(problem, context->pool);
    return {};
  });
}

tsr_status merge(tsr_context* context, tsr_stream*, const tsr_merge_desc* desc) {
  return enter(context, [&]() -> Verdict {
    MergeProblem problem;
    TSR_TRY(check_merge(desc, CheckOptions{}, &problem));
    merge_parts(problem, context->pool);
    return {};
  });
}

}  // namespace tsr::cpu
