// The tables that ggml asks of a back end: one registry entry, its devices, their backend objects. Loaded by
// GGML_BACKEND_PATH or ggml_backend_load(); docs/llama.cpp.md is the users' page.
//
// A device of type ACCEL that shares ggml's host buffers gets every FLASH_ATTN_EXT node of a CPU model that it says yes to:
// the scheduler moves a node to a back end of higher rank whose buffer type is the same. Where the runtime has CUDA devices and
// the engine can use them there is no device of ours: cuda.h says how attention gets to the engine then.
#include "attention.h"
#include "cuda.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>

namespace tsr::ggml {
namespace {

struct Device {
  ggml_backend_device base;
  Engine* engine;
  std::string name, description;
  /** What a runtime's context last gave any of its backend objects; 0: nothing yet. */
  std::atomic<int> threads;
};

struct Backend {
  ggml_backend base;
  Device* device;
  Attention* attention;
};

Device* of(ggml_backend_dev_t device) { return static_cast<Device*>(device->context); }
Backend* of(ggml_backend_t backend) { return static_cast<Backend*>(backend->context); }

/** TESSERA_GGML_SMALL=take: small problems, too, however many threads ggml has. */
bool take_small = false;

/** The host; nullptr if the runtime has CUDA devices in its place. */
Device* host = nullptr;

// ------------------------------------------------------------------------------------------------------- backends

const char* backend_name(ggml_backend_t backend) { return of(backend)->device->name.c_str(); }

void backend_free(ggml_backend_t backend) {
  Backend* own = of(backend);
  delete own->attention;
  delete own;
  tell_counts();
}

Outcome compute(Backend* own, const ggml_tensor* node, std::string* why) try {
  AttentionOp op;
  if (!is_attention(node)) *why = "this node wasn't accepted";
  return is_attention(node) && read_op(node, &op, why) ? own->attention->compute(op, why) : Outcome::failed;
} catch (const std::bad_alloc&) {
  return Outcome::out_of_memory;
} catch (const std::exception& error) {
  *why = error.what();
  return Outcome::failed;
}

// ggml calls this and the tables' other functions as C: nothing may be thrown at it.
enum ggml_status backend_compute(ggml_backend_t backend, ggml_cgraph* graph) try {
  Backend* own = of(backend);
  const int count = fn.graph_n_nodes(graph);
  for (int i = 0; i < count; i++) {
    const ggml_tensor* node = fn.graph_node(graph, i);
    if ((node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0 || is_view(node)) continue;
    std::string why;
    const Outcome outcome = compute(own, node, &why);
    if (outcome == Outcome::done) continue;
    log(GGML_LOG_LEVEL_ERROR, "tessera: " + std::string(fn.op_name(node->op)) +
                                  " failed: " + (outcome == Outcome::out_of_memory ? "out of memory" : why));
    return outcome == Outcome::out_of_memory ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
  }
  return GGML_STATUS_SUCCESS;
} catch (const std::bad_alloc&) {
  return GGML_STATUS_ALLOC_FAILED;
} catch (...) {
  log(GGML_LOG_LEVEL_ERROR, "tessera: a graph failed with an exception");
  return GGML_STATUS_FAILED;
}

void set_threads(ggml_backend_t backend, int threads) {
  of(backend)->attention->set_threads(threads);
  of(backend)->device->threads.store(threads, std::memory_order_relaxed);
}

ggml_guid_t guid() {
  static ggml_guid id = {0x74, 0x65, 0x73, 0x73, 0x65, 0x72, 0x61, 0x2d,
                         0x67, 0x67, 0x6d, 0x6c, 0x2d, 0x66, 0x61, 0x01};
  return &id;
}

// -------------------------------------------------------------------------------------------------------- devices

const char* device_name(ggml_backend_dev_t device) { return of(device)->name.c_str(); }
const char* device_description(ggml_backend_dev_t device) { return of(device)->description.c_str(); }

/** The host's, counted there: nothing to report. */
void device_memory(ggml_backend_dev_t, size_t* free, size_t* total) { *free = *total = 0; }

enum ggml_backend_dev_type device_type(ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_ACCEL; }

void device_props(ggml_backend_dev_t device, ggml_backend_dev_props* props) {
  props->name = device_name(device);
  props->description = device_description(device);
  props->type = device_type(device);
  device_memory(device, &props->memory_free, &props->memory_total);
  props->caps = {};
  props->caps.buffer_from_host_ptr = true;
}

ggml_backend_t device_init(ggml_backend_dev_t device, const char*) try {
  Device* own = of(device);
  auto backend = std::make_unique<Backend>();
  backend->device = own;
  backend->attention = host_attention(*own->engine);
  backend->base.guid = guid();
  backend->base.iface.get_name = backend_name;
  backend->base.iface.free = backend_free;
  backend->base.iface.graph_compute = backend_compute;
  backend->base.device = device;
  backend->base.context = backend.get();
  return &backend.release()->base;
} catch (...) {
  log(GGML_LOG_LEVEL_ERROR, "tessera: no back end: an exception, out of memory most likely");
  return nullptr;
}

ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t) { return fn.cpu_buffer_type(); }

ggml_backend_buffer_t device_buffer_from_host(ggml_backend_dev_t, void* data, size_t size, size_t) {
  return fn.cpu_buffer_from_ptr(data, size);
}

bool takes(const Device& own, const AttentionOp& op, std::string* why) {
  if (!host_supports(*own.engine, op, why)) return false;
  if (take_small || host_worth(op, own.threads.load(std::memory_order_relaxed))) return true;
  *why = "small, and several threads to start anew after it (TESSERA_GGML_SMALL=take takes it)";
  return false;
}

bool device_supports_op(ggml_backend_dev_t device, const ggml_tensor* node) try {
  if (is_view(node)) return true;
  if (!is_attention(node)) return false;
  AttentionOp op;
  std::string why;
  const bool can = read_op(node, &op, &why) && takes(*of(device), op, &why);
  if (!can) tell("an attention is left to ggml: " + why);
  return can;
} catch (...) {
  return false;
}

bool device_supports_buft(ggml_backend_dev_t, ggml_backend_buffer_type_t type) { return fn.buft_is_host(type); }

const ggml_backend_device_i* device_table() {
  static const ggml_backend_device_i table = [] {
    ggml_backend_device_i t = {};
    t.get_name = device_name;
    t.get_description = device_description;
    t.get_memory = device_memory;
    t.get_type = device_type;
    t.get_props = device_props;
    t.init_backend = device_init;
    t.get_buffer_type = device_buffer_type;
    t.buffer_from_host_ptr = device_buffer_from_host;
    t.supports_op = device_supports_op;
    t.supports_buft = device_supports_buft;
    return t;
  }();
  return &table;
}

// ------------------------------------------------------------------------------------------------------- registry

const char* reg_name(ggml_backend_reg_t) { return "Tessera"; }
size_t reg_device_count(ggml_backend_reg_t) { return host != nullptr ? 1 : 0; }
ggml_backend_dev_t reg_device(ggml_backend_reg_t, size_t index) {
  return index < reg_device_count(nullptr) ? &host->base : nullptr;
}

uint64_t call_count() { return counters.calls; }

void* reg_proc_address(ggml_backend_reg_t, const char* name) {
  if (std::strcmp(name, "ggml_backend_set_n_threads") == 0) return reinterpret_cast<void*>(set_threads);
  if (std::strcmp(name, "tessera_ggml_calls") == 0) return reinterpret_cast<void*>(call_count);
  return nullptr;
}

ggml_backend_reg* registry() {
  static ggml_backend_reg reg = [] {
    ggml_backend_reg r = {};
    r.api_version = GGML_BACKEND_API_VERSION;
    r.iface.get_name = reg_name;
    r.iface.get_device_count = reg_device_count;
    r.iface.get_device = reg_device;
    r.iface.get_proc_address = reg_proc_address;
    return r;
  }();
  return &reg;
}

void add_host(Engine* engine) {
  tsr_device_info info = {};
  info.struct_size = sizeof info;
  engine->table().device_info(0, &info);
  host = new Device{};
  host->engine = engine;
  host->name = "Tessera";
  host->description = "Tessera attention on " + std::string(info.name) + " (" + info.arch + ")";
  host->base.iface = *device_table();
  host->base.reg = registry();
  host->base.context = host;
}

/** A variable that is one of some words; the first if it isn't set. False if it is something else. */
bool choose(const char* variable, std::initializer_list<const char*> words, std::string* value, std::string* why) {
  const char* given = std::getenv(variable);
  *value = given == nullptr || *given == '\0' ? *words.begin() : given;
  std::string all;
  for (const char* word : words) {
    if (*value == word) return true;
    all += std::string(all.empty() ? "" : word == *(words.end() - 1) ? " or " : ", ") + word;
  }
  *why = std::string(variable) + " is " + *value + ", must be " + all;
  return false;
}

bool start_cuda(std::string* why) {
  Engine* engine = Engine::open("cuda", why);
  if (engine == nullptr || !enter_cuda(*engine, take_small, why)) return false;
  tell("attention on CUDA devices by " + engine->path());
  return true;
}

bool start(void* caller, std::string* why) {
  if (!find_functions(caller, why)) return false;
  std::string mode, small;
  if (!choose("TESSERA_GGML_DEVICE", {"auto", "cpu", "cuda"}, &mode, why)) return false;
  if (!choose("TESSERA_GGML_SMALL", {"auto", "take"}, &small, why)) return false;
  take_small = small == "take";
  if (mode == "cuda") return start_cuda(why);
  if (mode == "auto" && has_cuda()) {
    if (start_cuda(why)) return true;
    tell("not used on CUDA devices: " + *why);
  }
  Engine* engine = Engine::open("cpu", why);
  if (engine == nullptr) return false;
  add_host(engine);
  tell("attention by " + engine->path());
  return true;
}

/** True if the plug-in can be used; else one line has said why not. `caller`: an address in the runtime's code. */
bool start_once(void* caller) {
  static const bool started = [caller] {
    std::string why;
    try {
      if (start(caller, &why)) return true;
    } catch (const std::exception& error) {
      why = error.what();
    }
    log(GGML_LOG_LEVEL_ERROR, "tessera: not used: " + why);
    return false;
  }();
  return started;
}

}  // namespace
}  // namespace tsr::ggml

extern "C" {

TSR_EXPORT uint64_t tessera_ggml_calls(void);
uint64_t tessera_ggml_calls(void) { return tsr::ggml::counters.calls; }

/** Asked first: a 0 is no error to the runtime, so that the one line of start_once() is all that is said. */
TSR_EXPORT int ggml_backend_score(void);
int ggml_backend_score(void) { return tsr::ggml::start_once(__builtin_return_address(0)) ? 1 : 0; }

TSR_EXPORT ggml_backend_reg_t ggml_backend_init(void);
ggml_backend_reg_t ggml_backend_init(void) {
  return tsr::ggml::start_once(__builtin_return_address(0)) ? tsr::ggml::registry() : nullptr;
}
}
