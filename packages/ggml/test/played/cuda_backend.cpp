// A ggml back end that calls itself CUDA and lets ggml's CPU back end compute, in buffers that it says the host can't read. With
// driver.cpp and the CPU engine under the CUDA engine's name, the plug-in's CUDA mode runs in real runtimes without a GPU.
#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

namespace {

ggml_backend_dev_t cpu() {
  static ggml_backend_dev_t device = [] {
    ggml_backend_dev_t found = nullptr;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
      if (ggml_backend_dev_type(ggml_backend_dev_get(i)) == GGML_BACKEND_DEVICE_TYPE_CPU)
        found = ggml_backend_dev_get(i);
    }
    return found;
  }();
  return device;
}

ggml_backend_device device;
ggml_backend_buffer_type buffers;

struct Backend {
  ggml_backend base;
  ggml_backend_t cpu;
};
Backend* of(ggml_backend_t backend) { return static_cast<Backend*>(backend->context); }

ggml_backend_t init(ggml_backend_dev_t, const char*) {
  static ggml_guid guid = {1, 2, 3};
  auto* made = new Backend{};
  made->cpu = ggml_backend_dev_init(cpu(), nullptr);
  made->base.guid = &guid;
  made->base.device = &device;
  made->base.context = made;
  made->base.iface.get_name = [](ggml_backend_t) { return "CUDA0"; };
  made->base.iface.free = [](ggml_backend_t own) {
    ggml_backend_free(of(own)->cpu);
    delete of(own);
  };
  made->base.iface.synchronize = [](ggml_backend_t) {};
  made->base.iface.graph_compute = [](ggml_backend_t own, ggml_cgraph* graph) {
    return ggml_backend_graph_compute(of(own)->cpu, graph);
  };
  made->base.iface.event_record = [](ggml_backend_t, ggml_backend_event_t) {};
  made->base.iface.event_wait = [](ggml_backend_t, ggml_backend_event_t) {};
  return &made->base;
}

ggml_backend_reg* registry() {
  static ggml_backend_reg reg = [] {
    buffers.device = &device;
    buffers.iface = ggml_backend_cpu_buffer_type()->iface;
    buffers.iface.get_name = [](ggml_backend_buffer_type_t) { return "CUDA0"; };
    buffers.iface.is_host = [](ggml_backend_buffer_type_t) { return false; };
    buffers.iface.alloc_buffer = [](ggml_backend_buffer_type_t own, size_t size) {
      ggml_backend_buffer_t made = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
      if (made != nullptr) made->buft = own;
      return made;
    };
    ggml_backend_device_i& t = device.iface;
    t.get_name = [](ggml_backend_dev_t) { return "CUDA0"; };
    t.get_description = [](ggml_backend_dev_t) { return "the CPU, played as a GPU"; };
    t.get_memory = [](ggml_backend_dev_t, size_t* free, size_t* total) { *free = *total = size_t{4} << 30; };
    t.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
    t.get_props = [](ggml_backend_dev_t own, ggml_backend_dev_props* props) {
      *props = {};
      props->name = own->iface.get_name(own);
      props->description = own->iface.get_description(own);
      props->type = own->iface.get_type(own);
      own->iface.get_memory(own, &props->memory_free, &props->memory_total);
    };
    t.init_backend = init;
    t.get_buffer_type = [](ggml_backend_dev_t) { return &buffers; };
    t.supports_op = [](ggml_backend_dev_t, const ggml_tensor* op) { return ggml_backend_dev_supports_op(cpu(), op); };
    t.supports_buft = [](ggml_backend_dev_t, ggml_backend_buffer_type_t type) { return type == &buffers; };
    t.event_new = [](ggml_backend_dev_t own) { return new ggml_backend_event{own, nullptr}; };
    t.event_free = [](ggml_backend_dev_t, ggml_backend_event_t event) { delete event; };
    t.event_synchronize = [](ggml_backend_dev_t, ggml_backend_event_t) {};
    ggml_backend_reg r = {};
    r.api_version = GGML_BACKEND_API_VERSION;
    r.iface.get_name = [](ggml_backend_reg_t) { return "CUDA"; };
    r.iface.get_device_count = [](ggml_backend_reg_t) { return size_t{1}; };
    r.iface.get_device = [](ggml_backend_reg_t, size_t) { return &device; };
    r.iface.get_proc_address = [](ggml_backend_reg_t, const char*) { return static_cast<void*>(nullptr); };
    device.reg = &reg;
    return r;
  }();
  return &reg;
}

}  // namespace

extern "C" ggml_backend_reg_t ggml_backend_init() { return registry(); }
