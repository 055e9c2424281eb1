#include "cuda.h"

#include "cuda_driver.h"
#include "device_attention.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>

namespace tsr::ggml {

namespace {

/** A CUDA device as ggml made it. */
struct Device {
  Engine* engine;
  /** The engine's number for it. */
  int index;
  bool small;
  decltype(ggml_backend_device_i::init_backend) init_backend;
};

/** A CUDA back end object as ggml made it, and what computes attention for it. */
class Backend {
 public:
  /** nullptr, and why, if there can be none. */
  static std::unique_ptr<Backend> make(const Device& device, ggml_backend_t theirs, std::string* why);
  ~Backend() {
    for (ggml_backend_event_t event : {theirs_done_, ours_done_}) {
      if (event != nullptr) theirs_->device->iface.event_free(theirs_->device, event);
    }
  }

  enum ggml_status compute(ggml_cgraph* graph);
  /** What it was before; its table is as it was. */
  void leave() { theirs_->iface = original_; }

 private:
  Backend(const tsr_backend& table, tsr_context* context, bool small, ggml_backend_t theirs)
      : theirs_(theirs), original_(theirs->iface), attention_(table, context, small) {}

  bool takes(const ggml_tensor* node, AttentionOp* op);
  bool compute(const AttentionOp& op);
  enum ggml_status give(ggml_cgraph* graph, int begin, int end);
  bool to_us();
  bool to_them();

  ggml_backend_t theirs_;
  ggml_backend_i original_;
  DeviceAttention attention_;
  /** Events of ggml's CUDA back end, which are the driver's. */
  ggml_backend_event_t theirs_done_ = nullptr, ours_done_ = nullptr;
  /** What comes next waits for what we did last, not yet for ggml's stream. */
  bool our_turn_ = false;
  bool warned_ = false;
};

std::mutex mutex;
std::map<ggml_backend_dev_t, Device>& devices() {
  static auto* all = new std::map<ggml_backend_dev_t, Device>;  // never destroyed: a runtime's threads may outlive it
  return *all;
}
std::map<ggml_backend_t, std::unique_ptr<Backend>>& backends() {
  static auto* all = new std::map<ggml_backend_t, std::unique_ptr<Backend>>;
  return *all;
}

std::unique_ptr<Backend> Backend::make(const Device& device, ggml_backend_t theirs, std::string* why) {
  if (fn.backend_device(theirs) != theirs->device) {
    *why = "its back end's table isn't laid out as the plug-in knows it";
    return nullptr;
  }
  const ggml_backend_device_i& table = theirs->device->iface;
  if (theirs->iface.event_record == nullptr || theirs->iface.event_wait == nullptr || table.event_new == nullptr ||
      table.event_free == nullptr) {
    *why = "this runtime's CUDA back end has no events";
    return nullptr;
  }
  tsr_context* context = device.engine->context(device.index, 0, why);
  if (context == nullptr) return nullptr;
  std::unique_ptr<Backend> made(new Backend(device.engine->table(), context, device.small, theirs));
  for (ggml_backend_event_t* event : {&made->theirs_done_, &made->ours_done_}) {
    *event = table.event_new(theirs->device);
    if (*event != nullptr) continue;
    *why = "this runtime's CUDA back end gave no event";
    return nullptr;
  }
  return made;
}

/** What we launch next waits for what ggml has launched. */
bool Backend::to_us() {
  if (our_turn_) return true;
  original_.event_record(theirs_, theirs_done_);
  our_turn_ = driver.stream_wait(attention_.stream(), theirs_done_->context, 0) == 0;
  return our_turn_;
}

bool Backend::to_them() {
  if (!our_turn_) return true;
  our_turn_ = false;
  if (driver.event_record(ours_done_->context, attention_.stream()) != 0) return false;
  original_.event_wait(theirs_, ours_done_);
  return true;
}

bool Backend::takes(const ggml_tensor* node, AttentionOp* op) {
  if ((node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0 || !is_attention(node)) return false;
  std::string why;
  if (read_op(node, op, &why) && attention_.takes(*op, &why)) return true;
  tell("an attention is left to ggml: " + why);
  return false;
}

/** False: nothing was written that ggml doesn't write when it computes the node. */
bool Backend::compute(const AttentionOp& op) {
  std::string why = "the driver can't make one stream wait for the other";
  if (to_us()) {
    why.clear();
    if (attention_.compute(op, &why) == Outcome::done) return true;
  }
  if (!warned_) log(GGML_LOG_LEVEL_WARN, "tessera: an attention is left to ggml after all: " + why);
  warned_ = true;
  return false;
}

/** Nodes [begin, end), if any of them computes anything. */
enum ggml_status Backend::give(ggml_cgraph* graph, int begin, int end) {
  bool work = false;
  for (int i = begin; i < end && !work; i++) {
    const ggml_tensor* node = fn.graph_node(graph, i);
    work = (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 && !is_view(node);
  }
  if (!work) return GGML_STATUS_SUCCESS;
  if (!to_them()) return GGML_STATUS_FAILED;
  GraphView view = fn.graph_view(graph, begin, end);
  return original_.graph_compute(theirs_, reinterpret_cast<ggml_cgraph*>(&view));
}

enum ggml_status Backend::compute(ggml_cgraph* graph) {
  if (!to_them()) return GGML_STATUS_FAILED;  // after a graph that was given up
  attention_.forget_masks();
  const int count = fn.graph_n_nodes(graph);
  int begin = 0;  // all before it has been given to one of the two
  for (int i = 0; i < count; i++) {
    AttentionOp op;
    if (!takes(fn.graph_node(graph, i), &op)) continue;
    const enum ggml_status status = give(graph, begin, i);
    if (status != GGML_STATUS_SUCCESS) return status;
    begin = compute(op) ? i + 1 : i;
  }
  if (begin == 0 && !our_turn_) return original_.graph_compute(theirs_, graph);
  const enum ggml_status status = give(graph, begin, count);
  return to_them() ? status : GGML_STATUS_FAILED;
}

Backend* of(ggml_backend_t theirs) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = backends().find(theirs);
  return found != backends().end() ? found->second.get() : nullptr;
}

// ggml calls these as C: nothing may be thrown at it.

enum ggml_status graph_compute(ggml_backend_t theirs, ggml_cgraph* graph) try {
  return of(theirs)->compute(graph);
} catch (const std::bad_alloc&) {
  return GGML_STATUS_ALLOC_FAILED;
} catch (...) {
  log(GGML_LOG_LEVEL_ERROR, "tessera: a graph failed with an exception");
  return GGML_STATUS_FAILED;
}

void free_backend(ggml_backend_t theirs) {
  try {
    std::unique_ptr<Backend> own;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      const auto found = backends().find(theirs);
      own = std::move(found->second);
      backends().erase(found);
    }
    if (theirs->iface.synchronize != nullptr) theirs->iface.synchronize(theirs);
    own->leave();
  } catch (...) {
    log(GGML_LOG_LEVEL_ERROR, "tessera: a CUDA back end can't be left, and isn't freed");
    return;
  }
  tell_counts();
  theirs->iface.free(theirs);
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char* parameters) {
  ggml_backend_t theirs = nullptr;
  try {
    Device known;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      known = devices().at(device);
    }
    theirs = known.init_backend(device, parameters);
    if (theirs == nullptr) return nullptr;
    std::string why;
    if (std::unique_ptr<Backend> own = Backend::make(known, theirs, &why)) {
      const std::lock_guard<std::mutex> lock(mutex);
      backends()[theirs] = std::move(own);
      theirs->iface.graph_compute = graph_compute;
      theirs->iface.free = free_backend;
      return theirs;
    }
    log(GGML_LOG_LEVEL_ERROR, "tessera: not used on " + std::string(device->iface.get_name(device)) + ": " + why);
  } catch (...) {
    log(GGML_LOG_LEVEL_ERROR, "tessera: not used on a CUDA device: an exception, out of memory most likely");
  }
  return theirs;
}

/** Named CUDA0, CUDA1, …: HIP's are ROCm0, …. */
bool is_cuda(ggml_backend_dev_t device) { return std::strncmp(device->iface.get_name(device), "CUDA", 4) == 0; }

/**
 * Its tables are those of the plug-in's headers. A runtime asks for the plug-in's version when ggml_backend_init has returned,
 * which is too late for what is written here. What follows a table is where it should be if the table has the right size.
 */
bool known_layout(ggml_backend_dev_t device, std::string* why) {
  ggml_backend_reg_t reg = fn.dev_reg(device);
  if (reg->api_version != GGML_BACKEND_API_VERSION) {  // every version's first field
    *why = "this runtime's back ends are of version " + std::to_string(reg->api_version) + ", the plug-in of " +
           std::to_string(GGML_BACKEND_API_VERSION);
    return false;
  }
  if (device->reg == reg) return true;
  *why = "the table of this runtime's CUDA device isn't laid out as the plug-in knows it";
  return false;
}

}  // namespace

bool has_cuda() {
  if (fn.dev_count == nullptr || fn.dev_get == nullptr) return false;
  for (size_t i = 0; i < fn.dev_count(); i++) {
    if (is_cuda(fn.dev_get(i))) return true;
  }
  return false;
}

bool enter_cuda(Engine& engine, bool small, std::string* why) {
  if (!has_cuda()) {
    *why = "this runtime has no CUDA device";
    return false;
  }
  if (fn.graph_view == nullptr || fn.dev_reg == nullptr || fn.backend_device == nullptr) {
    *why = "this runtime doesn't export ggml_graph_view, ggml_backend_dev_backend_reg or ggml_backend_get_device";
    return false;
  }
  // With this variable it runs parts of a graph on several streams, from a fork before an attention to that attention.
  if (const char* streams = std::getenv("GGML_CUDA_GRAPH_OPT"); streams != nullptr && std::atoi(streams) == 1) {
    *why = "GGML_CUDA_GRAPH_OPT is 1: ggml may compute an attention's operands beside each other";
    return false;
  }
  if (driver.launch == nullptr && !find_cuda_driver(why)) return false;
  int entered = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  for (size_t i = 0; i < fn.dev_count(); i++) {
    ggml_backend_dev_t device = fn.dev_get(i);
    if (!is_cuda(device)) continue;
    const std::string name = device->iface.get_name(device);
    if (!known_layout(device, why)) {
      if (entered > 0) tell("not used on " + name + " and what comes after it: " + *why);
      return entered > 0;
    }
    if (device->iface.init_backend == init_backend) {  // ours would call itself
      entered++;
      continue;
    }
    const int index = std::atoi(name.c_str() + 4);  // both count what CUDA_VISIBLE_DEVICES leaves
    if (index >= engine.device_count()) {
      tell("not used on " + name + ": the engine has no such device");
      continue;
    }
    devices()[device] = {&engine, index, small, device->iface.init_backend};
    device->iface.init_backend = init_backend;
    entered++;
  }
  if (entered == 0) *why = "the engine has none of this runtime's CUDA devices";
  return entered > 0;
}

}  // namespace tsr::ggml
