// Check, select, translate, plan, launch: every call of the attention kind goes the same way and stops where it has its
// answer. Nothing is allocated and no string is built on the way of a call that succeeds.
#include "api.h"
#include "catalogue.h"
#include "context.h"
#include "tessera/common/device_translate.h"

namespace tsr::hip::host {
namespace {

// Lengths and pages are in the device's memory: the kernels clamp them.
CheckOptions options(bool shapes_only) {
  CheckOptions o;
  o.max_head_dim = kMaxHeadDim;
  o.shapes_only = shapes_only;
  o.host_readable = false;
  return o;
}

struct Ready {
  const Kernel* kernel = nullptr;
  Attention attention;
  Plan plan;
  Launches launches;
};

bool too_large(const Launches& launches) {
  if (launches.failed) return true;
  for (int32_t i = 0; i < launches.count; ++i) {
    if (static_cast<uint64_t>(launches.of[i].blocks) * launches.of[i].threads > UINT32_MAX) return true;
  }
  return false;
}

// What a launch can't do is found here, so that supports and attention are of one opinion. The workspace, which may be NULL
// where nothing is enqueued, is checked behind this: its size is the plan's.
Verdict plan(const tsr_context& context, const Problem& problem, const Variant& row, void* workspace, Ready* ready) {
  TSR_TRY(translate(problem, &ready->attention));
  ready->kernel = &kernel_of(row);
  ready->plan = ready->kernel->plan(ready->attention, context.limits);
  if (ready->plan.threads == 0) {
    return unsupported(ready->kernel->name, ": none of its tiles fits this device's local memory");
  }
  ready->kernel->launch(ready->attention, ready->plan, workspace, &ready->launches);
  if (too_large(ready->launches)) {
    return unsupported("q: makes more tiles than HIP launches at once: threads of a grid must be at most ", UINT32_MAX);
  }
  return {};
}

Verdict select(const tsr_context& context, const Problem& problem, void* workspace, Ready* ready) {
  const Selection selection = select_variant(context.rows, problem, preference, false);
  if (selection.row == nullptr) return selection.verdict;
  return plan(context, problem, *selection.row, workspace, ready);
}

Verdict launch(tsr_context& context, const tsr_stream& on, Ready& ready) {
  const Attention& a = ready.attention;
  if (a.batch == 0 || a.heads == 0 || a.query_rows == 0) return {};
  return context.gpu->launch(ready.launches, on.native);
}

std::string notes_of(const tsr_context& context, const Problem& problem, const Variant& row) {
  const std::string version = overridden_arch();
  std::string notes = text("never run on AMD hardware; ", context.device.arch, " code object on ", context.device.arch,
                           context.device.modes);
  if (!version.empty()) notes += text("; HSA_OVERRIDE_GFX_VERSION is ", version);
  for (const tsr::View* view : {&problem.k, &problem.v}) {
    if (view->dtype == problem.q.dtype) continue;
    notes += text("; ", view == &problem.k ? "k (" : "v (", dtype_name(view->dtype), ") is converted as it is read");
  }
  if (!kernel_of(row).matrix) notes += "; fp32 arithmetic without matrix instructions";
  if (row.flushes) notes += "; numbers below 2^-126 count as 0";
  return notes + "; a NaN or infinity in v can reach other queries of a tile that sees only part of it";
}

void fill_explanation(const tsr_context& context, const Problem& problem, const Variant& row, const Ready& ready,
                      tsr_explanation* e) {
  e->family = row.family;
  copy_text(e->kernel, row.name);
  e->tile_q = ready.plan.tile_q;
  e->tile_k = ready.plan.tile_k;
  e->stages = ready.plan.stages;
  e->splits = ready.plan.splits;
  e->threads = ready.plan.threads;
  e->shared_bytes = ready.plan.lds_bytes;
  e->workspace_bytes = ready.plan.workspace_bytes;
  copy_text(e->notes, notes_of(context, problem, row).c_str());
}

Verdict launch_append_of(tsr_context& context, const tsr_stream& on, const Append& append) {
  if (append.batch == 0 || append.rows == 0) return {};
  Launches launches;
  launch_append(append, &launches);
  if (too_large(launches)) return unsupported("k: has more tokens than HIP takes in one launch");
  return context.gpu->launch(launches, on.native);
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
    TSR_TRY(check_attention(desc, options(true), &problem));
    Ready ready;
    return select(*context, problem, nullptr, &ready);
  });
}

tsr_status explain(tsr_context* context, const tsr_attention_desc* desc, tsr_explanation* explanation) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(explanation);
    Problem problem;
    TSR_TRY(check_attention(desc, options(true), &problem));
    const Selection selection = select_variant(context->rows, problem, preference, true);
    tsr_explanation e{};
    Verdict verdict = selection.verdict;
    if (selection.row != nullptr) {
      Ready ready;
      verdict = plan(*context, problem, *selection.row, nullptr, &ready);
      if (verdict.ok()) fill_explanation(*context, problem, *selection.row, ready, &e);
    }
    TSR_TRY(write_explanation(selection.rejections, e, explanation));
    return verdict;
  });
}

tsr_status attention_workspace(tsr_context* context, const tsr_attention_desc* desc, uint64_t* bytes) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(bytes);
    Problem problem;
    TSR_TRY(check_attention(desc, options(true), &problem));
    Ready ready;
    TSR_TRY(select(*context, problem, nullptr, &ready));
    *bytes = ready.plan.workspace_bytes;
    return {};
  });
}

tsr_status attention(tsr_context* context, tsr_stream* stream, const tsr_attention_desc* desc) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    Problem problem;
    TSR_TRY(check_attention(desc, options(false), &problem));
    const Workspace workspace = given_workspace(desc);
    Ready ready;
    TSR_TRY(select(*context, problem, workspace.data, &ready));
    TSR_TRY(check_workspace(workspace, ready.plan.workspace_bytes));
    return launch(*context, on, ready);
  });
}

tsr_status decode_workspace(tsr_context* context, const tsr_decode_desc* desc, uint64_t* bytes) {
  return enter(context, [&]() -> Verdict {
    TSR_NOT_NULL(bytes);
    DecodeProblem problem;
    TSR_TRY(check_decode(desc, options(true), &problem));
    Append append;
    if (problem.appends) TSR_TRY(translate(problem.append, &append));
    Ready ready;
    TSR_TRY(select(*context, problem.attention, nullptr, &ready));
    *bytes = ready.plan.workspace_bytes;
    return {};
  });
}

// Everything that can be wrong is found before the append is launched.
tsr_status decode(tsr_context* context, tsr_stream* stream, const tsr_decode_desc* desc) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    DecodeProblem problem;
    TSR_TRY(check_decode(desc, options(false), &problem));
    Append append;
    if (problem.appends) TSR_TRY(translate(problem.append, &append));
    const Workspace workspace = given_workspace(desc->attention);
    Ready ready;
    TSR_TRY(select(*context, problem.attention, workspace.data, &ready));
    TSR_TRY(check_workspace(workspace, ready.plan.workspace_bytes));
    if (problem.appends) TSR_TRY(launch_append_of(*context, on, append));
    return launch(*context, on, ready);
  });
}

tsr_status kv_append(tsr_context* context, tsr_stream* stream, const tsr_append_desc* desc) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    AppendProblem problem;
    TSR_TRY(check_append(desc, options(false), &problem));
    Append append;
    TSR_TRY(translate(problem, &append));
    return launch_append_of(*context, on, append);
  });
}

tsr_status merge(tsr_context* context, tsr_stream* stream, const tsr_merge_desc* desc) {
  return enter_stream(context, stream, [&](tsr_stream& on) -> Verdict {
    MergeProblem problem;
    TSR_TRY(check_merge(desc, options(false), &problem));
    Merge m;
    TSR_TRY(translate(problem, &m));
    if (m.batch == 0 || m.rows == 0 || m.heads == 0) return {};
    Launches launches;
    launch_merge(m, &launches);
    if (too_large(launches)) return unsupported("out: has more rows than HIP takes in one launch");
    return context->gpu->launch(launches, on.native);
  });
}

}  // namespace tsr::hip::host
