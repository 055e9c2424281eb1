#pragma once

#include "tessera/common/check.h"
#include "thread_pool.h"

namespace tsr::cpu {

/// Combines results over disjoint keys. `out` and `lse` may be those of a part. The problem is checked.
void merge_parts(const MergeProblem& problem, ThreadPool& pool);

}  // namespace tsr::cpu
