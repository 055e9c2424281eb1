// FLASH_ATTN_EXT by an engine: what the two modes (host memory, a CUDA device's memory) have in common, and the first.
#pragma once

#include "engine.h"
#include "op.h"

#include <atomic>
#include <cstdint>
#include <string>

namespace tsr::ggml {

/** What happened since the process began. */
struct Counters {
  std::atomic<uint64_t> calls{0}, by_shape{0}, with_bias{0}, without_mask{0};
};
extern Counters counters;
/** One line of them, if TESSERA_GGML_LOG is set. */
void tell_counts();

enum class Outcome {
  done,
  out_of_memory,
  failed
};

/** One instance for each of the runtime's backend objects; used by one thread at a time. */
class Attention {
 public:
  virtual ~Attention() = default;
  virtual Outcome compute(const AttentionOp& op, std::string* why) = 0;
  /** As ggml_backend_set_n_threads says; 0: the engine's own choice. */
  void set_threads(int threads) { threads_ = threads; }

 protected:
  int threads_ = 0;
};

/** Whether the engine can do the op where ggml's tensors are in host memory. */
bool host_supports(Engine& engine, const AttentionOp& op, std::string* why);
/**
 * Whether the op is worth that the runtime, which last said it has so many threads (0: nothing yet), cuts its graph in two for it.
 * By the op's sizes alone: a graph is planned before its mask is filled.
 */
bool host_worth(const AttentionOp& op, int threads);
Attention* host_attention(Engine& engine);

Outcome outcome_of(tsr_status status);

}  // namespace tsr::ggml
