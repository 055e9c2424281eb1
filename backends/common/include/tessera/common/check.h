// From a caller's descriptor to a normalised problem, or to the reason why not. Every rule of tessera.h and of
// docs/semantics.md that doesn't depend on a kernel is checked here, once, for all back ends: nothing behind it has to
// doubt a shape, a stride or a NULL again. Nothing here writes to the caller's memory.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/common/problem.h"

namespace tsr {

/// More rows than this in one sequence can't be told apart from "unbounded" in visibility.h.
constexpr int64_t kMaxRows = int64_t{1} << 39;
/// More elements, or bytes reached, than this fit into no address space; up to it, products stay within 64 bits.
constexpr int64_t kMaxElements = int64_t{1} << 56;

struct AppendProblem;

struct CheckOptions {
  /// Largest D and Dv that any variant of the back end takes; larger ones are TSR_UNSUPPORTED.
  int64_t max_head_dim = 512;
  /// supports, explain, workspace: tensors may have NULL data.
  bool shapes_only = false;
  /// Lengths, offsets and page tables can be read from this thread now; their contents are checked where given.
  bool host_readable = true;
  /// Check an attention as it will be once this append is done (decode).
  const AppendProblem* after_append = nullptr;
};

/// A checked tsr_append_desc.
struct AppendProblem {
  int64_t batch = 0;
  int64_t kv_heads = 0;
  int64_t heads = 0;  ///< of q; 0 without q
  int64_t dim = 0;
  int64_t value_dim = 0;
  int64_t rows = 0;  ///< S padded, T packed
  int64_t capacity = 0;

  View k, v, q, q_out;
  View cache_k, cache_v;  ///< paged: the batch stride is the page's

  const int32_t* page_table = nullptr;
  int64_t page_table_stride = 0;
  int64_t page_size = 0;  ///< 0 = not paged
  int64_t page_count = 0;

  int32_t* lengths = nullptr;
  const int32_t* new_lens = nullptr;
  const int32_t* cu_seqlens = nullptr;
  const float* k_scale = nullptr;
  const float* v_scale = nullptr;
  bool packed = false;
  bool advance = false;
  /// new_count() can be read: always, but for a check by shapes alone.
  bool counts_readable = true;

  /// dims == 0: no rotation.
  struct Rope {
    int32_t dims = 0;
    bool interleaved = false;
    double theta = 0;
    double scale = 1;
    const int32_t* positions = nullptr;  ///< [batch, row] or [row], NULL: cache length + index
    int64_t positions_stride = 0;        ///< between batch entries
  } rope;

  bool paged() const { return page_size > 0; }
  /// Row of the first new token of batch entry b in k, v and q, and how many are real.
  int64_t first_row(int64_t b) const { return packed ? cu_seqlens[b] : 0; }
  int64_t new_count(int64_t b) const {
    return packed ? cu_seqlens[b + 1] - cu_seqlens[b] : new_lens ? new_lens[b] : rows;
  }
};

struct DecodeProblem {
  bool appends = false;
  AppendProblem append;
  Problem attention;
};

/// A checked tsr_merge_desc. Packed results are one batch entry.
struct MergeProblem {
  int64_t batch = 0;
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t value_dim = 0;
  std::vector<View> outs;
  std::vector<View> lses;
  View out, lse;
};

/// On success `problem` is whole; otherwise its contents mean nothing. `workspace` and `workspace_bytes` aren't looked at.
Verdict check_attention(const tsr_attention_desc* desc, const CheckOptions& options, Problem* problem);
Verdict check_append(const tsr_append_desc* desc, const CheckOptions& options, AppendProblem* problem);
/// Checks the append, and the attention as it will be after it.
Verdict check_decode(const tsr_decode_desc* desc, const CheckOptions& options, DecodeProblem* problem);
/// Its parts, for back ends that go through them one by one.
Verdict read_decode(const tsr_decode_desc* desc, tsr_decode_desc* parts);
Verdict check_batches(int64_t append, int64_t attention);
/// A failure's text behind the name of the part of the descriptor that it is about.
Verdict in_part(const char* part, Verdict verdict);
Verdict check_merge(const tsr_merge_desc* desc, const CheckOptions& options, MergeProblem* problem);

/// Workspace members of a descriptor, read by its struct_size: what attention() has to compare with the plan.
struct Workspace {
  void* data = nullptr;
  uint64_t bytes = 0;
};
Workspace given_workspace(const tsr_attention_desc* desc);
/// Big enough for `needed` and 64-byte aligned, or why not.
Verdict check_workspace(const Workspace& workspace, uint64_t needed);

}  // namespace tsr
