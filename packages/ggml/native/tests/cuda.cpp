// The CUDA mode without a GPU: the CPU engine plays the device, whose memory the host can read; ggml's CUDA back end, the driver
// and its one kernel are played here, and write down what they were asked for. argv[1]: the folder of libtessera-cpu.so.
#include "cuda.h"
#include "cuda_driver.h"
#include "device_attention.h"
#include "problem.h"
#include "../../test/played/mask_rows.h"

#include <unistd.h>

#include <stdexcept>

namespace {

// ------------------------------------------------------------------------------------------------------- the driver

/** What was asked of ggml's back end and of the driver, in order. */
std::vector<std::string> told;
bool waiting_fails = false, launching_fails = false;
int mask_reads = 0, modules_loaded = 0, modules_unloaded = 0;

void play_driver() {
  driver.stream_context = [](void*, void**) { return 0; };
  driver.push_context = [](void*) { return 0; };
  driver.pop_context = [](void**) { return 0; };
  driver.allocate_host = [](void** memory, size_t bytes) {
    *memory = std::malloc(bytes);
    return 0;
  };
  driver.free_host = [](void* memory) {
    std::free(memory);
    return 0;
  };
  driver.event_record = [](void* event, void*) {
    told.push_back("we record " + *static_cast<std::string*>(event));
    return 0;
  };
  driver.stream_wait = [](void*, void* event, unsigned) {
    told.push_back("we wait for " + *static_cast<std::string*>(event));
    return waiting_fails ? 1 : 0;
  };
  driver.load_module = [](void** module, const void*) {
    *module = &told;
    modules_loaded++;
    return 0;
  };
  driver.unload_module = [](void* module) {
    modules_unloaded += module == &told;
    return 0;
  };
  driver.find_function = [](void** function, void*, const char*) {
    *function = &told;
    return 0;
  };
  driver.launch = [](void*, unsigned count, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                     void** parameters, void**) {
    if (launching_fails) return 1;
    mask_reads++;
    play_mask_rows(count, parameters);
    return 0;
  };
}

// ------------------------------------------------------------------------------------- ggml, and its CUDA back end

struct Graph {
  int count;
  ggml_tensor** nodes;
};
ggml_cgraph* graph_of(Graph* graph) { return reinterpret_cast<ggml_cgraph*>(graph); }

bool events = true, computing_throws = false;
int freed = 0;

ggml_backend_event_t new_event(ggml_backend_dev_t device) {
  static int count = 0;
  return new ggml_backend_event{device, new std::string(count++ % 2 == 0 ? "theirs" : "ours")};
}
void free_event(ggml_backend_dev_t, ggml_backend_event_t event) {
  delete static_cast<std::string*>(event->context);
  delete event;
}

enum ggml_status compute_theirs(ggml_backend_t, ggml_cgraph* graph) {
  const auto* nodes = reinterpret_cast<Graph*>(graph);
  std::string names;
  for (int i = 0; i < nodes->count; i++) names += std::string(" ") + nodes->nodes[i]->name;
  told.push_back("they compute" + names);
  if (computing_throws) throw std::runtime_error("their computing");
  return GGML_STATUS_SUCCESS;
}

ggml_backend_t init_theirs(ggml_backend_dev_t device, const char*) {
  auto* backend = new ggml_backend{};
  backend->device = device;
  backend->iface.graph_compute = compute_theirs;
  backend->iface.free = [](ggml_backend_t own) {
    freed++;
    delete own;
  };
  if (events) {
    backend->iface.event_record = [](ggml_backend_t, ggml_backend_event_t event) {
      told.push_back("they record " + *static_cast<std::string*>(event->context));
    };
    backend->iface.event_wait = [](ggml_backend_t, ggml_backend_event_t event) {
      told.push_back("they wait for " + *static_cast<std::string*>(event->context));
    };
  }
  return backend;
}

ggml_backend_reg registry = {GGML_BACKEND_API_VERSION, {}, nullptr}, elsewhere = registry;

ggml_backend_device make_device(const char* (*name)(ggml_backend_dev_t)) {
  ggml_backend_device device = {};
  device.reg = &registry;
  device.iface.get_name = name;
  device.iface.init_backend = init_theirs;
  device.iface.event_new = new_event;
  device.iface.event_free = free_event;
  return device;
}
ggml_backend_device runtime[] = {make_device([](ggml_backend_dev_t) { return "CPU"; }),
                                 make_device([](ggml_backend_dev_t) { return "CUDA0"; }),
                                 make_device([](ggml_backend_dev_t) { return "CUDA1"; })};
size_t runtime_devices = 0;

void play_ggml() {
  stand_ins();
  fn.op_name = [](enum ggml_op op) {
    return op == GGML_OP_FLASH_ATTN_EXT ? "FLASH_ATTN_EXT" : op == GGML_OP_VIEW ? "VIEW" : "MUL_MAT";
  };
  fn.dev_count = [] { return runtime_devices; };
  fn.dev_get = [](size_t i) { return &runtime[i]; };
  fn.dev_reg = [](ggml_backend_dev_t) { return &registry; };
  fn.backend_device = [](ggml_backend_t backend) { return backend->device; };
  fn.graph_n_nodes = [](ggml_cgraph* graph) { return reinterpret_cast<Graph*>(graph)->count; };
  fn.graph_node = [](ggml_cgraph* graph, int i) { return reinterpret_cast<Graph*>(graph)->nodes[i]; };
  fn.graph_view = [](ggml_cgraph* graph, int begin, int end) {
    const Graph part = {end - begin, reinterpret_cast<Graph*>(graph)->nodes + begin};
    GraphView view;
    std::memcpy(view.bytes, &part, sizeof part);
    return view;
  };
}

ggml_tensor other(const char* name, enum ggml_op op = GGML_OP_MUL_MAT) {
  ggml_tensor tensor = {};
  std::strcpy(tensor.name, name);
  tensor.op = op;
  tensor.flags = GGML_TENSOR_FLAG_COMPUTE;
  return tensor;
}

/** A problem whose result is a node to compute. */
struct Node {
  Case c;
  Problem p;
  explicit Node(const Case& of) : c(of), p(make(of)) {
    connect(&p);
    p.out.t.flags = GGML_TENSOR_FLAG_COMPUTE;
    std::strcpy(p.out.t.name, "attention");
  }
  ggml_tensor* node() { return &p.out.t; }
  bool right() { return error(c, p) < 1e-5; }
  void spoil() { std::fill(p.out.bytes.begin(), p.out.bytes.end(), uint8_t{0xff}); }
};

// ------------------------------------------------------------------------------------------------------------ tests

/** What TESSERA_GGML_LOG makes it say. */
std::string stderr_of(const std::function<void()>& work) {
  std::FILE* file = std::tmpfile();
  const int before = dup(2);
  dup2(fileno(file), 2);
  setenv("TESSERA_GGML_LOG", "1", 1);
  work();
  unsetenv("TESSERA_GGML_LOG");
  dup2(before, 2);
  close(before);
  std::string all(4096, '\0');
  std::rewind(file);
  all.resize(std::fread(&all[0], 1, all.size(), file));
  std::fclose(file);
  return all;
}

const float hidden = -std::numeric_limits<float>::infinity();

Case causal() {
  Case c;
  c.mask = [](int64_t, int64_t, int64_t i, int64_t j) { return j <= i + 9 ? 0 : hidden; };
  return c;
}

/** Every case that the CPU engine's kernels can do stands for one that the CUDA engine's can. */
void all_cases(const tsr_backend& table, tsr_context* context) {
  int taken = 0;
  each_case([&](const Case& c) {
    Node node(c);
    AttentionOp op;
    std::string why;
    DeviceAttention attention(table, context, true);
    if (!read_op(node.node(), &op, &why) || !attention.takes(op, &why))
      return expect(!why.empty(), c.name + ": no reason");
    taken++;
    const uint64_t before = c.counted != nullptr ? c.counted->load() : 0;
    for (int call = 0; call < 2; call++) {
      node.spoil();
      if (attention.compute(op, &why) != Outcome::done) return expect(false, c.name + ": " + why);
      expect(node.right(), c.name + " on a device: wrong");
    }
    if (c.counted != nullptr) expect(c.counted->load() == before + 2, c.name + " on a device: took another path");
  });
  expect(taken > 25, "only " + std::to_string(taken) + " cases were tried on a device");
}

/** What a call of the engine got, and the copies around it. */
const tsr_backend* real = nullptr;
const void *seen_k = nullptr, *seen_v = nullptr, *seen_bias = nullptr, *seen_out = nullptr;
uint64_t copied = 0;
bool halves = false;

tsr_backend watched(const tsr_backend& table) {
  real = &table;
  tsr_backend watching = table;
  watching.attention = [](tsr_context* context, tsr_stream* stream, const tsr_attention_desc* desc) {
    seen_k = desc->k->data;
    seen_v = desc->v->data;
    seen_out = desc->out->data;
    seen_bias = desc->bias != nullptr ? desc->bias->data : nullptr;
    return real->attention(context, stream, desc);
  };
  watching.copy = [](tsr_context* context, tsr_stream* stream, void* to, const void* from, uint64_t bytes,
                     tsr_copy_kind kind) {
    copied += bytes;
    return real->copy(context, stream, to, from, bytes, kind);
  };
  // The kernel for Hopper writes no f32.
  watching.explain = [](tsr_context* context, const tsr_attention_desc* desc, tsr_explanation* explanation) {
    const tsr_status status = real->explain(context, desc, explanation);
    const bool half = halves && desc->out->dtype == TSR_F16 && desc->bias == nullptr;
    if (status == TSR_OK) std::strcpy(explanation->kernel, half ? "prefill-wgmma" : "prefill-mma");
    return status;
  };
  return watching;
}

void without_copies(const tsr_backend& table, tsr_context* context) {
  const tsr_backend watching = watched(table);
  for (const bool as_half : {false, true}) {
    halves = as_half;
    DeviceAttention attention(watching, context, true);
    for (const bool shape : {true, false}) {
      Case c = causal();
      if (!shape) c.mask = [](int64_t, int64_t, int64_t i, int64_t j) { return j % 2 == i % 2 ? 0 : hidden; };
      Node node(c);
      const std::string name = std::string(shape ? "a shape" : "cells") + (as_half ? ", f16 result" : "");
      AttentionOp op;
      std::string why;
      copied = 0;
      attention.forget_masks();
      expect(
          read_op(node.node(), &op, &why) && attention.takes(op, &why) && attention.compute(op, &why) == Outcome::done,
          name + ": " + why);
      // A result in f16 is rounded once more; numbers here are below 2.
      expect(as_half && shape ? error(c, node.p) < 2e-3 && error(c, node.p) > 1e-5 : node.right(), name + ": wrong");
      expect(seen_k == node.p.k.t.data && seen_v == node.p.v.t.data, name + ": k or v was copied");
      expect(seen_bias == (shape ? nullptr : node.p.mask->t.data), name + ": another bias");
      expect((seen_out == node.p.out.t.data) == !(as_half && shape), name + ": result by another way");
      // Of the mask 16 bytes for each of its rows, and nothing else of anything.
      expect(copied == 16 * static_cast<uint64_t>(c.queries), name + ": copied " + std::to_string(copied));
    }
  }
  halves = false;
}

void declines(const tsr_backend& table, tsr_context* context) {
  const auto no = [&](const char* name, bool small, const char* words, const std::function<void(Case&)>& change) {
    Case c = causal();
    change(c);
    Node node(c);
    AttentionOp op;
    std::string why;
    DeviceAttention attention(table, context, small);
    expect(read_op(node.node(), &op, &why) && !attention.takes(op, &why) && why.find(words) != std::string::npos,
           std::string(name) + ": " + why);
  };
  no("ALiBi", true, "ALiBi", [](Case& c) { c.max_bias = 8; });
  no("f32 keys", true, "aren't both f16", [](Case& c) { c.type = GGML_TYPE_F32; });
  no("no keys", true, "no queries or no keys", [](Case& c) { c.keys = 0, c.mask = nullptr; });
  no("masks of some heads", true, "repeats", [](Case& c) { c.mask_heads = 2; });
  no("a small one", false, "small", [](Case&) {});
  const auto worth = [&](int64_t queries, int64_t keys, int64_t kv_heads, tsr_dtype type) {
    AttentionOp op = {};
    op.batches = 1, op.queries = queries, op.keys = keys, op.heads = 4 * kv_heads, op.kv_heads = kv_heads;
    op.head_dim = op.value_dim = 128;
    op.q = op.out = {nullptr, TSR_F32, 0, 512 * kv_heads, 128};
    op.k = op.v = {nullptr, type, 0, 128 * kv_heads, 128};
    std::string why;
    DeviceAttention attention(table, context, false);
    return attention.takes(op, &why) ? "taken" : why;
  };
  const auto from = [&](int64_t queries, int64_t keys, tsr_dtype type, const std::string& name) {
    expect(worth(queries, keys - 1, 8, type) != "taken", name + ": one key less was taken");
    expect(worth(queries, keys, 8, type) == "taken", name + " was left: " + worth(queries, keys, 8, type));
  };
  from(1, 46875, TSR_F16, "a token over 46,875 keys");
  from(1, 12208, TSR_Q8_0, "a token over 12,208 keys in q8_0");
  from(1, 12208, TSR_Q4_0, "a token over 12,208 keys in q4_0");
  from(512, 1908, TSR_F16, "512 tokens over 1,908 keys");
}

using Words = std::vector<std::string>;

void expect_told(const char* name, const Words& wanted) {
  std::string all;
  for (const std::string& line : told) all += "\n  " + line;
  expect(told == wanted, std::string(name) + ":" + all);
  told.clear();
}

void in_graphs(Engine& engine) {
  std::string why;
  runtime_devices = 1;
  expect(!has_cuda() && !enter_cuda(engine, true, &why) && why.find("no CUDA device") != std::string::npos,
         "no CUDA device: " + why);
  runtime_devices = 3;
  const auto view = fn.graph_view;
  fn.graph_view = nullptr;
  expect(has_cuda() && !enter_cuda(engine, true, &why) && why.find("ggml_graph_view") != std::string::npos,
         "no graph_view: " + why);
  fn.graph_view = view;
  registry.api_version++;
  expect(!enter_cuda(engine, true, &why) && why.find("back ends are of version") != std::string::npos,
         "another version: " + why);
  registry.api_version--;
  runtime[1].reg = &elsewhere;
  expect(!enter_cuda(engine, true, &why) && why.find("isn't laid out") != std::string::npos, "another table: " + why);
  runtime[1].reg = &registry;
  setenv("GGML_CUDA_GRAPH_OPT", "1", 1);
  expect(!enter_cuda(engine, true, &why) && why.find("GGML_CUDA_GRAPH_OPT") != std::string::npos, "streams: " + why);
  unsetenv("GGML_CUDA_GRAPH_OPT");
  expect(runtime[1].iface.init_backend == init_theirs, "a device was entered for nothing");
  std::string said = stderr_of([&] {
    for (int time = 0; time < 2; time++) expect(enter_cuda(engine, true, &why), "can't enter: " + why);
  });
  expect(said == "tessera: not used on CUDA1: the engine has no such device\n",
         "a device that the engine hasn't: " + said);
  runtime[2].reg = &elsewhere;
  said = stderr_of([&] { expect(enter_cuda(engine, true, &why), "CUDA0 was entered already"); });
  expect(said.find("CUDA1 and what comes after it: the table") != std::string::npos, "CUDA1's table: " + said);
  runtime[2].reg = &registry;
  expect(runtime[0].iface.init_backend == init_theirs, "ggml's CPU was entered");
  expect(runtime[1].iface.init_backend != init_theirs, "CUDA0 wasn't entered");
  expect(runtime[2].iface.init_backend == init_theirs, "CUDA1 was entered, which the engine hasn't");

  events = false;
  ggml_backend_t backend = runtime[1].iface.init_backend(&runtime[1], nullptr);
  expect(backend->iface.graph_compute == compute_theirs, "entered a back end without events");
  backend->iface.free(backend);
  events = true;
  const auto device_of = fn.backend_device;
  fn.backend_device = [](ggml_backend_t) { return &runtime[0]; };
  backend = runtime[1].iface.init_backend(&runtime[1], nullptr);
  expect(backend->iface.graph_compute == compute_theirs, "entered a back end of another layout");
  backend->iface.free(backend);
  fn.backend_device = device_of;

  backend = runtime[1].iface.init_backend(&runtime[1], nullptr);
  const auto run = [&](std::vector<ggml_tensor*> nodes) {
    Graph graph = {static_cast<int>(nodes.size()), nodes.data()};
    return backend->iface.graph_compute(backend, graph_of(&graph)) == GGML_STATUS_SUCCESS;
  };
  ggml_tensor a = other("a"), b = other("b"), looks = other("looks", GGML_OP_VIEW);
  Node first(causal()), second(causal());
  second.p.out.t.src[3] = first.p.out.t.src[3];  // two layers, one mask
  second.p.mask = nullptr;
  const auto both_right = [&] {
    second.p.mask.reset(first.p.mask.get());
    const bool right = first.right() && second.right();
    second.p.mask.release();
    return right;
  };

  told.clear();
  expect(run({&a, &b}), "no attention");
  expect_told("no attention", {"they compute a b"});

  mask_reads = 0;
  expect(run({&a, first.node(), &looks, second.node(), &b}) && both_right(), "two layers: wrong");
  expect(mask_reads == 1, "a mask was read " + std::to_string(mask_reads) + " times");
  expect_told("two layers", {"they compute a", "they record theirs", "we wait for theirs", "we record ours",
                             "they wait for ours", "they compute b"});

  // The same tensors, another mask in them.
  first.c.mask = [](int64_t, int64_t, int64_t i, int64_t j) { return j <= i + 2 ? 0 : hidden; };
  second.c.mask = first.c.mask;
  Node other_mask(first.c);
  first.p.mask->bytes = other_mask.p.mask->bytes;
  first.p.mask->values = other_mask.p.mask->values;
  first.p.mask->t.data = first.p.mask->bytes.data();
  expect(run({first.node(), &a, second.node()}) && both_right(), "another mask: the last graph's was used");
  expect(mask_reads == 2, "the next graph's mask wasn't read");
  expect_told("attention first and last",
              {"they record theirs", "we wait for theirs", "we record ours", "they wait for ours", "they compute a",
               "they record theirs", "we wait for theirs", "we record ours", "they wait for ours"});

  Case alibi = causal();
  alibi.max_bias = 8;
  Node left(alibi);
  expect(run({&a, left.node(), &b}), "ALiBi");
  expect_told("what isn't taken stays in its graph", {"they compute a attention b"});
  first.node()->flags = 0;
  expect(run({&a, first.node()}), "a node that isn't to be computed");
  expect_told("a node that isn't to be computed", {"they compute a attention"});
  first.node()->flags = GGML_TENSOR_FLAG_COMPUTE;

  waiting_fails = true;
  expect(run({&a, first.node(), &b}), "a stream that can't wait");
  waiting_fails = false;
  expect_told("what we can't do, ggml does",
              {"they compute a", "they record theirs", "we wait for theirs", "they compute attention b"});
  launching_fails = true;
  expect(run({first.node(), &b}), "a kernel that can't be launched");
  launching_fails = false;
  expect_told("a mask that can't be read", {"they record theirs", "we wait for theirs", "we record ours",
                                            "they wait for ours", "they compute attention b"});
  first.spoil();
  expect(run({first.node()}) && first.right(), "after failures");
  expect_told("after failures", {"they record theirs", "we wait for theirs", "we record ours", "they wait for ours"});

  computing_throws = true;
  expect(!run({&a}), "an exception came through");
  computing_throws = false;
  told.clear();

  freed = 0;
  backend->iface.free(backend);
  expect(freed == 1, "ggml's back end wasn't freed");

  // A context of llama.cpp's leaves nothing on the device.
  const int before = modules_loaded;
  for (int i = 0; i < 3; i++) {
    backend = runtime[1].iface.init_backend(&runtime[1], nullptr);
    for (int call = 0; call < 2; call++) expect(run({first.node()}), "another context");
    backend->iface.free(backend);
  }
  expect(modules_loaded == before + 3, "loaded " + std::to_string(modules_loaded - before) + " modules for 3 contexts");
  expect(modules_unloaded == modules_loaded, std::to_string(modules_loaded - modules_unloaded) + " modules are left");
}

void relative_paths() {
  std::string why;
  setenv("TESSERA_BACKEND_PATH", "some/folder", 1);
  const std::string said = stderr_of([&] { Engine::open("none", &why); });
  expect(said == "tessera: some/folder in TESSERA_BACKEND_PATH is refused: it isn't absolute\n", "told: " + said);
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) setenv("TESSERA_BACKEND_PATH", arguments[1], 1);
  std::string why;
  expect(find_cuda_driver(&why) || why.find("NVIDIA's driver") != std::string::npos, "no driver: " + why);
  play_ggml();
  play_driver();
  Engine* engine = Engine::open("cpu", &why);
  if (engine == nullptr) {
    std::printf("%s\n", why.c_str());
    return 77;
  }
  tsr_context* context = engine->context(0, 1, &why);
  all_cases(engine->table(), context);
  without_copies(engine->table(), context);
  declines(engine->table(), context);
  in_graphs(*engine);
  relative_paths();
  std::printf("::tessera {\"passed\":%d,\"failed\":%d,\"skipped\":0}\n", passed, failed);
  return failed > 0;
}
