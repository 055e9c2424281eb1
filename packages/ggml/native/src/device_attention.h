// FLASH_ATTN_EXT on tensors in a CUDA device's memory, where ggml's own back end has put them: nothing of K and V is copied.
#pragma once

#include "attention.h"
#include "device_buffer.h"
#include "device_mask.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tsr::ggml {

/** One instance for each of ggml's backend objects. Work goes to the context's own stream, and calls don't wait for it. */
class DeviceAttention {
 public:
  /** `small`: also what ggml does as fast. */
  DeviceAttention(const tsr_backend& table, tsr_context* context, bool small)
      : table_(table),
        context_(context),
        small_(small),
        mask_(table, context),
        queries_(table, context),
        result_(table, context),
        zeros_(table, context),
        numbers_(table, context),
        workspace_(table, context) {}

  /** By sizes, types and layout. Remembered, as a graph is run many times. */
  bool takes(const AttentionOp& op, std::string* why);
  /** Before another graph, which may have other masks in the same tensors. */
  void forget_masks() { masks_.clear(); }
  /** On any failure nothing has been written but the op's own result, which can be computed by somebody else. */
  Outcome compute(const AttentionOp& op, std::string* why);

  void* stream() const { return table_.stream_native(context_, nullptr); }

 private:
  struct Verdict {
    bool taken;
    /** The best kernel for a mask that is a shape writes f16 alone. */
    bool half_result;
    std::string why;
  };
  Verdict judge(const AttentionOp& op);
  const Verdict& verdict(const AttentionOp& op);
  bool best_kernel(const AttentionOp& op, tsr_dtype result, tsr_dtype bias, std::string* kernel, std::string* why);

  tsr_status run(const AttentionOp& op, std::string* why);
  tsr_status shapes(const AttentionOp& op, const std::vector<MaskShape>** shapes, std::string* why);
  /** Between f32 and f16: the contract has no conversion as such; a merge of one part is one. */
  tsr_status convert(const AttentionOp& op, const View& from, const View& to, int64_t dim);
  tsr_status place_numbers(Call* call);

  const tsr_backend& table_;
  tsr_context* context_;
  bool small_;
  DeviceMask mask_;
  std::map<std::vector<int64_t>, Verdict> verdicts_;
  /** By mask and number of queries. */
  std::map<std::pair<const ggml_tensor*, int64_t>, std::vector<MaskShape>> masks_;
  DeviceBuffer queries_, result_, zeros_, numbers_, workspace_;
};

}  // namespace tsr::ggml
