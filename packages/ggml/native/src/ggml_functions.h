// What of ggml the plug-in calls. Nothing is linked: a runtime has its own ggml-base, under whatever file name or inside its
// executable, and the functions are looked up there.
#pragma once

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

#include <string>

namespace tsr::ggml {

/**
 * Nodes [begin, end) of a graph: a ggml_cgraph, which public headers don't lay out. Returned through memory of the caller's,
 * who may have more of it than the function writes.
 */
struct GraphView {
  alignas(16) unsigned char bytes[1024];
};

struct Functions {
  decltype(&::ggml_op_name) op_name;
  decltype(&::ggml_type_name) type_name;
  decltype(&::ggml_type_size) type_size;
  decltype(&::ggml_blck_size) blck_size;
  decltype(&::ggml_get_type_traits) get_type_traits;
  decltype(&::ggml_tensor_overhead) tensor_overhead;
  decltype(&::ggml_graph_n_nodes) graph_n_nodes;
  decltype(&::ggml_graph_node) graph_node;
  decltype(&::ggml_backend_cpu_buffer_type) cpu_buffer_type;
  decltype(&::ggml_backend_cpu_buffer_from_ptr) cpu_buffer_from_ptr;
  decltype(&::ggml_backend_buft_is_host) buft_is_host;
  // For CUDA devices; nullptr if not found. The registry is beside ggml-base.
  decltype(&::ggml_backend_dev_count) dev_count;
  decltype(&::ggml_backend_dev_get) dev_get;
  decltype(&::ggml_backend_dev_backend_reg) dev_reg;
  decltype(&::ggml_backend_get_device) backend_device;
  GraphView (*graph_view)(ggml_cgraph* graph, int begin, int end);
  // Absent from headers and from older runtimes: nullptr if not found.
  void (*log_internal)(enum ggml_log_level level, const char* format, ...);
};

/** Valid once find_functions() has said yes. */
extern Functions fn;

/**
 * Looks everything up in the library that `caller`, an address in the code that called ggml_backend_init, belongs to, and in
 * those that it was linked against. False, and why, if one is missing or tensors are laid out otherwise than the headers say.
 */
bool find_functions(void* caller, std::string* why);

/** One line through the runtime's own log (its users know where that goes), else on stderr. */
void log(enum ggml_log_level level, const char* line);
inline void log(enum ggml_log_level level, const std::string& line) { log(level, line.c_str()); }

/** TESSERA_GGML_LOG is set: what the plug-in does is told on stderr. */
bool verbose();
/** The same line once only, on stderr, if verbose(). */
void tell(const std::string& line);

}  // namespace tsr::ggml
