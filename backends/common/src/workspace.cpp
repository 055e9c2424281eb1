#include "tessera/common/check.h"
#include "tessera/common/text.h"

namespace tsr {

Workspace given_workspace(const tsr_attention_desc* desc) {
  tsr_attention_desc d;
  if (!read_struct(desc, "attention", &d).ok()) return {};
  return {d.workspace, d.workspace_bytes};
}

Verdict check_workspace(const Workspace& workspace, uint64_t needed) {
  if (needed == 0) return {};
  if (workspace.data == nullptr || workspace.bytes < needed) {
    return invalid("workspace: ", workspace.data ? "" : "is NULL, ", "workspace_bytes is ", workspace.bytes,
                   ", must be at least ", needed, " (ask attention_workspace)");
  }
  if (reinterpret_cast<uintptr_t>(workspace.data) % 64 != 0) return invalid("workspace: is not aligned to 64 bytes");
  return {};
}

}  // namespace tsr
