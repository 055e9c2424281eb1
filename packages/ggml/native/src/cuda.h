// Attention inside ggml's own CUDA back end. A device of ours in front of ggml's would cut every graph at each attention, and
// the scheduler waits for one device before it starts the other. So the back end's graph_compute is called through ours: it
// gives ggml the nodes between attentions and computes these itself, on the same tensors. To a runtime the device is ggml's
// CUDA device, by name, memory, buffers and what it supports; nothing has to be chosen or ordered.
#pragma once

#include "engine.h"

#include <string>

namespace tsr::ggml {

/** The runtime has a CUDA device. */
bool has_cuda();
/**
 * From now on back ends of the runtime's CUDA devices that the engine has, too, compute attention by it. False, and why, if
 * there is none.
 */
bool enter_cuda(Engine& engine, bool small, std::string* why);

}  // namespace tsr::ggml
