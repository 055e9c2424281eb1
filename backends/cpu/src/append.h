#pragma once

#include "tessera/common/check.h"
#include "thread_pool.h"

namespace tsr::cpu {

/// Writes the new keys and values to the cache, rotates q, and moves the lengths if that was asked for. The problem is
/// checked; nothing here fails.
void append(const AppendProblem& problem, ThreadPool& pool);

}  // namespace tsr::cpu
