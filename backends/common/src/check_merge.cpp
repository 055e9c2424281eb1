// tsr_merge_desc -> MergeProblem.
#include "tensor.h"
#include "tessera/common/catalogue.h"
#include "tessera/common/check.h"

namespace tsr {
namespace {

// Rank 4 is padded, rank 3 packed. The first part decides for all.
struct Layout {
  bool packed;
  bool need_data;
  TensorRules outs(bool written) const {
    return {kFloatTypes, 0, packed ? "[T,Hq,Dv]" : "[B,Sq,Hq,Dv]", written, need_data, false};
  }
  TensorRules lses(bool written) const {
    return {dtype_bit(TSR_F32), 0, packed ? "[Hq,T]" : "[B,Hq,Sq]", written, need_data, false};
  }
  View out(const Tensor& t) const {
    const int row = packed ? 0 : 1;
    return {t.data, t.dtype, packed ? 0 : t.stride[0], t.stride[row], t.stride[row + 1]};
  }
  View lse(const Tensor& t) const {
    const int head = packed ? 0 : 1;
    return {t.data, t.dtype, packed ? 0 : t.stride[0], t.stride[head + 1], t.stride[head]};
  }
};

Verdict expect_lse_shape(const Tensor& lse, const Layout& layout, const MergeProblem& p) {
  const int head = layout.packed ? 0 : 1;
  if (!layout.packed) TSR_TRY(expect_extent(lse, 0, p.batch, "the batch of out"));
  TSR_TRY(expect_extent(lse, head, p.heads, "the heads of out"));
  return expect_extent(lse, head + 1, p.rows, "the rows of out");
}

Verdict expect_out_shape(const Tensor& out, const Layout& layout, const MergeProblem& p) {
  const int row = layout.packed ? 0 : 1;
  if (!layout.packed) TSR_TRY(expect_extent(out, 0, p.batch, "the batch of out"));
  TSR_TRY(expect_extent(out, row, p.rows, "the rows of out"));
  TSR_TRY(expect_extent(out, row + 1, p.heads, "the heads of out"));
  return expect_extent(out, row + 2, p.value_dim, "the head dim of out");
}

}  // namespace

Verdict check_merge(const tsr_merge_desc* desc, const CheckOptions& options, MergeProblem* problem) {
  tsr_merge_desc d;
  TSR_TRY(read_struct(desc, "merge", &d));
  if (d.count < 1) return invalid("count: is ", d.count, ", must be at least 1");
  if (d.outs == nullptr) return invalid("outs: is NULL, must be ", d.count, " tensors");
  if (d.lses == nullptr) return invalid("lses: is NULL, must be ", d.count, " tensors");
  tsr_tensor first;
  TSR_TRY(read_struct(d.out, "out", &first));
  if (first.rank != 3 && first.rank != 4) {
    return invalid("out: rank is ", first.rank, ", must be 4 [B,Sq,Hq,Dv] or 3 [T,Hq,Dv]");
  }
  const Layout layout{first.rank == 3, !options.shapes_only};
  MergeProblem p;

  Tensor t;
  TSR_TRY(read_tensor(d.out, "out", layout.outs(true), true, &t));
  const int row = layout.packed ? 0 : 1;
  p.batch = layout.packed ? 1 : t.shape[0];
  p.rows = t.shape[row];
  p.heads = t.shape[row + 1];
  p.value_dim = t.shape[row + 2];
  p.out = layout.out(t);
  TSR_TRY(read_tensor(d.lse, "lse", layout.lses(true), false, &t));
  if (t.given) {
    TSR_TRY(expect_lse_shape(t, layout, p));
    p.lse = layout.lse(t);
  }

  for (int32_t i = 0; i < d.count; ++i) {
    const std::string out_name = text("outs[", i, "]");
    const std::string lse_name = text("lses[", i, "]");
    TSR_TRY(read_tensor(d.outs[i], out_name.c_str(), layout.outs(false), true, &t));
    TSR_TRY(expect_out_shape(t, layout, p));
    p.outs.push_back(layout.out(t));
    TSR_TRY(read_tensor(d.lses[i], lse_name.c_str(), layout.lses(false), true, &t));
    TSR_TRY(expect_lse_shape(t, layout, p));
    p.lses.push_back(layout.lse(t));
  }
  *problem = std::move(p);
  return {};
}

}  // namespace tsr
