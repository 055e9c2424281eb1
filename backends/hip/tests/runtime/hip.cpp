// A libamdhip64 without a GPU. Device memory is host memory, a stream is a thread with a queue, and a kernel is a call of
//   extern "C" const char* tsr_emulated_launch(const char* architecture, const char* kernel, unsigned blocks,
//                                              unsigned threads, void** parameters)
// in the library that TSR_EMULATED_KERNELS names; what that returns, if not NULL, is a fault, and the device lost. Stricter than HIP where a mistake would otherwise
// show on some machines only: freed memory is overwritten; what would wait for a stream aborts, as does what is done with
// another device current than the stream's, and an event that is recorded into a graph.
//   STUB_DEVICES   gcnArchName of each device, "gfx942:sramecc+:xnack-,gfx1030" (none: hipErrorNoDevice, as HIP answers)
//   STUB_FAIL, STUB_RECORD, STUB_LEFT   backends/common/tests/played/failing.h; recorded is also what a kernel is launched with
// TSR_STUB_HIP5 makes it one of HIP 5: another struct of properties, under another name.
#include "hip.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels.h"
#include "played/failing.h"

namespace tsr::hip::host {

using Work = std::function<void()>;

constexpr hipError_t hipErrorInvalidValue = 1;
constexpr hipError_t hipErrorInvalidDevice = 101;
constexpr hipError_t hipErrorNoBinaryForGpu = 209;
constexpr hipError_t hipErrorSharedObjectInitFailed = 303;
constexpr hipError_t hipErrorStreamCaptureUnsupported = 900;

// What a graph keeps alive: destroyed with the last graph that has it.
struct Kept {
  hipHostFn_t destroy;
  void* argument;
  ~Kept() { destroy(argument); }
};
struct hipUserObject {
  std::shared_ptr<Kept> kept;
};
// Graphs, recorded or ready to launch, that nobody has destroyed.
struct Counted {
  static inline std::atomic<int> alive{0};
  Counted() { ++alive; }
  Counted(const Counted&) { ++alive; }
  Counted& operator=(const Counted&) = default;
  ~Counted() { --alive; }
};
struct ihipGraph : Counted {
  std::vector<Work> work;
  std::vector<std::shared_ptr<Kept>> kept;
};
struct hipGraphExec {
  ihipGraph graph;
};

struct ihipStream_t {
  explicit ihipStream_t(int on) : device(on), thread_([this] { run(); }) {}
  ~ihipStream_t() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
    delete captured;
  }
  void enqueue(Work work) {
    if (captured != nullptr) {
      captured->work.push_back(std::move(work));
      return;
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  void synchronize() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
  }

  const int device;
  ihipGraph* captured = nullptr;  ///< what is being recorded: it goes with a stream that dies meanwhile

 private:
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Work work = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  bool busy_ = false, ending_ = false;
  std::thread thread_;  // last: it uses all the others
};

struct ihipEvent_t {
  std::mutex mutex;
  std::condition_variable changed;
  long recorded = 0, reached = 0;
  std::chrono::steady_clock::time_point when{};
};

struct ihipModule_t {
  int device;
  std::string architecture;
  const char* image;
  size_t bytes;  ///< 0: an image that isn't ELF has every kernel
};
struct ihipModuleSymbol_t {
  const ihipModule_t* module;
  std::string kernel;
};

namespace {

constexpr size_t kDeviceMemory = size_t{1} << 30;
constexpr int kMostDevices = 8;

enum class Kind {
  kPinned,
  kDevice
};
struct Block {
  size_t bytes;
  Kind kind;
  int device;
};

// Never destroyed: streams may outlive main().
struct State {
  std::mutex mutex;
  std::atomic<int> pools{0};  ///< made
  std::map<char*, Block> blocks;
  size_t used[kMostDevices] = {};
  std::set<hipStream_t> streams;
  hipStream_t legacy[kMostDevices] = {};
  std::map<hipEvent_t, std::shared_ptr<ihipEvent_t>> events;
  std::atomic<hipError_t> fault{hipSuccess};
};
State& state() {
  static State& all = *new State;
  return all;
}

thread_local int current_device = 0;
thread_local hipError_t last_error = hipSuccess;

hipError_t failed(hipError_t error) {
  last_error = error;
  return error;
}

[[noreturn]] void forbidden(const char* what) {
  std::fprintf(stderr, "played HIP: %s\n", what);
  std::abort();
}

// What STUB_FAIL wants of this call.
hipError_t enter(const char* name) {
  const int told = stub_told(name);
  return told == 0 ? hipSuccess : failed(static_cast<hipError_t>(told));
}
#define ENTER() \
  if (const hipError_t told = enter(__func__)) return told

std::vector<std::string> devices() {
  std::vector<std::string> all;
  const char* const list = std::getenv("STUB_DEVICES");
  for (const char* at = list; at != nullptr && *at != '\0';) {
    const char* const end = std::strchr(at, ',');
    all.emplace_back(at, end ? static_cast<size_t>(end - at) : std::strlen(at));
    at = end ? end + 1 : nullptr;
  }
  return all;
}

bool is_device(int device) { return device >= 0 && device < static_cast<int>(devices().size()); }

hipStream_t of(hipStream_t stream) {
  if (stream == nullptr || stream == hipStreamLegacy) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    hipStream_t& legacy = state().legacy[current_device];
    if (legacy == nullptr) legacy = new ihipStream_t(current_device);
    return legacy;
  }
  if (stream->device != current_device) forbidden("a stream is used while another device is current");
  return stream;
}

std::shared_ptr<ihipEvent_t> of(hipEvent_t event) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  const auto found = state().events.find(event);
  if (found == state().events.end()) forbidden("an event that isn't there");
  return found->second;
}

hipError_t allocate(void** data, size_t bytes, Kind kind) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  size_t& used = s.used[current_device];
  if (bytes > kDeviceMemory || (kind == Kind::kDevice && used + bytes > kDeviceMemory))
    return failed(hipErrorOutOfMemory);
  auto* const memory = static_cast<char*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  std::memset(memory, 0xcd, bytes);
  s.blocks[memory] = {bytes, kind, current_device};
  if (kind == Kind::kDevice) used += bytes;
  *data = memory;
  return hipSuccess;
}

void release(void* data) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = s.blocks.find(static_cast<char*>(data));
  if (found == s.blocks.end()) forbidden("freeing what was never allocated");
  if (found->second.kind == Kind::kDevice) s.used[found->second.device] -= found->second.bytes;
  std::memset(data, 0xdd, found->second.bytes);  // whoever still uses it shall notice
  s.blocks.erase(found);
  std::free(data);
}

bool is_known(const void* data) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto* const at = static_cast<const char*>(data);
  auto next = s.blocks.upper_bound(const_cast<char*>(at));
  if (next == s.blocks.begin()) return false;
  --next;
  return at < next->first + next->second.bytes;
}

hipError_t properties(void* to, int device, size_t size, size_t arch_at) {
  if (!is_device(device)) return failed(hipErrorInvalidDevice);
  std::memset(to, 0, size);
  std::snprintf(static_cast<char*>(to), 256, "Played GPU %d", device);
  std::snprintf(static_cast<char*>(to) + arch_at, 256, "%s", devices()[static_cast<size_t>(device)].c_str());
  return hipSuccess;
}

bool contains(const ihipModule_t& module, const std::string& what) {
  const char* const end = module.image + module.bytes;
  return std::search(module.image, end, what.begin(), what.end()) != end;
}

using LaunchFunction = const char* (*)(const char* architecture, const char* kernel, unsigned blocks, unsigned threads,
                                       void** parameters);
LaunchFunction launch_function() {
  static const LaunchFunction found = [] {
    const char* const path = std::getenv("TSR_EMULATED_KERNELS");
    void* const library = path && *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (path && *path && library == nullptr) forbidden(dlerror());
    void* const symbol = library ? dlsym(library, "tsr_emulated_launch") : nullptr;
    if (library != nullptr && symbol == nullptr) forbidden("TSR_EMULATED_KERNELS has no tsr_emulated_launch");
    LaunchFunction function = nullptr;
    std::memcpy(&function, &symbol, sizeof symbol);
    return function;
  }();
  return found;
}

__attribute__((destructor)) void tell_what_is_left() {
  State& s = state();
  std::set<hipStream_t> streams;
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    streams = s.streams;
  }
  for (hipStream_t stream : streams) stream->synchronize();  // memory may be on its way back
  stub_left(s.blocks.size(), s.pools, streams.size(), s.events.size(), Counted::alive);
}

}  // namespace

#define HIP(result) extern "C" __attribute__((visibility("default"))) result

// --------------------------------------------------------------------------------------------------- errors, devices

HIP(const char*) hipGetErrorName(hipError_t error) {
  return error == hipErrorOutOfMemory      ? "hipErrorOutOfMemory"
         : error == hipErrorNoDevice       ? "hipErrorNoDevice"
         : error == hipErrorIllegalAddress ? "hipErrorIllegalAddress"
         : error == hipErrorNoBinaryForGpu ? "hipErrorNoBinaryForGpu"
                                           : "hipErrorOfStub";
}
HIP(const char*) hipGetErrorString(hipError_t) { return "words of the stub"; }
HIP(hipError_t) hipGetLastError() {
  const hipError_t error = last_error;
  last_error = hipSuccess;
  return error;
}
HIP(hipError_t) hipGetDeviceCount(int* count) {
  ENTER();
  *count = static_cast<int>(devices().size());
  return *count == 0 ? failed(hipErrorNoDevice) : hipSuccess;
}
HIP(hipError_t) hipGetDevice(int* device) {
  ENTER();
  *device = current_device;
  return hipSuccess;
}
HIP(hipError_t) hipSetDevice(int device) {
  ENTER();
  if (!is_device(device)) return failed(hipErrorInvalidDevice);
  current_device = device;
  return hipSuccess;
}
HIP(hipError_t) hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
  ENTER();
  if (!is_device(device)) return failed(hipErrorInvalidDevice);
  const std::string arch = devices()[static_cast<size_t>(device)];
  const bool cdna = arch.rfind("gfx9", 0) == 0;
  switch (attribute) {
    case hipDeviceAttributeMultiprocessorCount:
      *value = cdna ? 304 : 96;
      break;
    case hipDeviceAttributeMaxSharedMemoryPerBlock:
      *value = arch.rfind("gfx950", 0) == 0 ? 160 << 10 : 64 << 10;
      break;
    case hipDeviceAttributeMemoryPoolsSupported:
      *value = std::getenv("STUB_NO_POOLS") == nullptr;
      break;
    default:
      return failed(hipErrorInvalidValue);
  }
  return hipSuccess;
}
HIP(hipError_t) hipDeviceTotalMem(size_t* bytes, int device) {
  ENTER();
  *bytes = kDeviceMemory;
  return is_device(device) ? hipSuccess : failed(hipErrorInvalidDevice);
}
HIP(hipError_t) hipDeviceGetUuid(hipUUID* uuid, int device) {
  ENTER();
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016x", 0xa0 + device);
  std::memcpy(uuid->bytes, digits, sizeof uuid->bytes);
  return hipSuccess;
}
HIP(hipError_t) hipDeviceGetPCIBusId(char* id, int length, int device) {
  ENTER();
  std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", device + 3);
  return hipSuccess;
}
#ifdef TSR_STUB_HIP5
HIP(hipError_t) hipGetDeviceProperties(void* to, int device) {
  ENTER();
  return properties(to, device, 792, 396);
}
#else
HIP(hipError_t) hipGetDevicePropertiesR0600(void* to, int device) {
  ENTER();
  return properties(to, device, 1472, 1160);
}
// As HIP 6 and 7 have it too: the struct of HIP 5. Not for those who know the other.
HIP(hipError_t) hipGetDeviceProperties(void*, int) { forbidden("the properties of HIP 5 were asked for"); }
#endif

// ----------------------------------------------------------------------------------------------------------- kernels

HIP(hipError_t) hipModuleLoadData(hipModule_t* module, const void* image) {
  ENTER();
  const std::string name = devices()[static_cast<size_t>(current_device)];
  auto made = std::make_unique<ihipModule_t>();
  made->device = current_device;
  made->architecture = name.substr(0, name.find(':'));
  made->image = static_cast<const char*>(image);
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0) {
    made->bytes = header.e_shoff + static_cast<size_t>(header.e_shnum) * header.e_shentsize;
    if (!contains(*made, "amdhsa--" + made->architecture)) return failed(hipErrorNoBinaryForGpu);
  }
  *module = made.release();
  return hipSuccess;
}
HIP(hipError_t) hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  ENTER();
  if (module->bytes > 0 && !contains(*module, std::string(name) + ".kd")) return failed(hipErrorNotFound);
  *function = new ihipModuleSymbol_t{module, name};
  return hipSuccess;
}
HIP(hipError_t)
hipModuleLaunchKernel(hipFunction_t function, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads,
                      unsigned threads_y, unsigned threads_z, unsigned, hipStream_t stream, void** parameters,
                      void** extra) {
  ENTER();
  const std::string launch_of =
      "  " + function->kernel + " " + std::to_string(blocks) + " x " + std::to_string(threads);
  stub_append("STUB_RECORD", launch_of.c_str());
  if (blocks == 0 || threads == 0 || threads > 1024 || static_cast<uint64_t>(blocks) * threads > UINT32_MAX)
    return failed(hipErrorInvalidValue);
  if (blocks_y != 1 || blocks_z != 1 || threads_y != 1 || threads_z != 1 || extra != nullptr)
    forbidden("a launch of more than one dimension");
  if (function->module->device != current_device) forbidden("a kernel of another device");
  const LaunchFunction launch = launch_function();
  if (launch == nullptr) return failed(hipErrorSharedObjectInitFailed);
  // HIP copies as many bytes as the kernel's metadata says; all of ours are parts of this union.
  auto taken = std::make_shared<std::vector<char>>(sizeof(Launch::Arguments));
  std::memcpy(taken->data(), parameters[0], taken->size());
  of(stream)->enqueue([=] {
    std::vector<char> arguments = *taken;
    void* one[] = {arguments.data()};
    const char* const fault =
        launch(function->module->architecture.c_str(), function->kernel.c_str(), blocks, threads, one);
    if (fault == nullptr) return;
    std::fprintf(stderr, "played HIP: %s of %u x %u: %s\n", function->kernel.c_str(), blocks, threads, fault);
    state().fault = hipErrorIllegalAddress;
  });
  return hipSuccess;
}

// ------------------------------------------------------------------------------------------------------------ memory

HIP(hipError_t) hipMemPoolCreate(hipMemPool_t* pool, const hipMemPoolProps* props) {
  ENTER();
  if (props->location.id != current_device) forbidden("a pool of another device");
  ++state().pools;
  static char any;
  *pool = reinterpret_cast<hipMemPool_t>(&any);
  return hipSuccess;
}
HIP(hipError_t) hipMemPoolSetAttribute(hipMemPool_t, int, void*) {
  ENTER();
  return hipSuccess;
}
HIP(hipError_t) hipMemPoolTrimTo(hipMemPool_t, size_t) {
  ENTER();
  return hipSuccess;
}
HIP(hipError_t) hipMallocFromPoolAsync(void** data, size_t bytes, hipMemPool_t, hipStream_t stream) {
  ENTER();
  of(stream);
  return allocate(data, bytes, Kind::kDevice);
}
HIP(hipError_t) hipFreeAsync(void* data, hipStream_t stream) {
  ENTER();
  of(stream)->enqueue([data] { release(data); });
  return hipSuccess;
}
HIP(hipError_t) hipMalloc(void** data, size_t bytes) {
  ENTER();
  return allocate(data, bytes, Kind::kDevice);
}
HIP(hipError_t) hipFree(void* data) {
  ENTER();
  std::vector<hipStream_t> all;
  {
    const std::lock_guard<std::mutex> lock(state().mutex);
    all.assign(state().streams.begin(), state().streams.end());
    all.insert(all.end(), std::begin(state().legacy), std::end(state().legacy));
  }
  for (hipStream_t stream : all) {
    if (stream != nullptr) stream->synchronize();
  }
  release(data);
  return hipSuccess;
}
HIP(hipError_t) hipMemGetInfo(size_t* free, size_t* total) {
  ENTER();
  const std::lock_guard<std::mutex> lock(state().mutex);
  *free = kDeviceMemory - state().used[current_device];
  *total = kDeviceMemory;
  return hipSuccess;
}
HIP(hipError_t) hipHostMalloc(void** data, size_t bytes, unsigned) {
  ENTER();
  return allocate(data, bytes, Kind::kPinned);
}
HIP(hipError_t) hipHostFree(void* data) {
  ENTER();
  release(data);
  return hipSuccess;
}
HIP(hipError_t) hipHostGetDevicePointer(void** device, void* host, unsigned) {
  ENTER();
  if (!is_known(host)) return failed(hipErrorInvalidValue);
  *device = host;
  return hipSuccess;
}
HIP(hipError_t) hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
  ENTER();
  if (kind != hipMemcpyDeviceToDevice && !is_known(kind == hipMemcpyHostToDevice ? from : to))
    forbidden("a copy that waits for its stream");
  of(stream)->enqueue([=] { std::memmove(to, from, bytes); });
  return hipSuccess;
}
HIP(hipError_t) hipMemsetAsync(void* data, int value, size_t bytes, hipStream_t stream) {
  ENTER();
  of(stream)->enqueue([=] { std::memset(data, value, bytes); });
  return hipSuccess;
}
HIP(hipError_t) hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void* argument) {
  ENTER();
  of(stream)->enqueue([=] { function(argument); });
  return hipSuccess;
}

// --------------------------------------------------------------------------------------------------- streams, events

HIP(hipError_t) hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  ENTER();
  if (flags != hipStreamNonBlocking) forbidden("a stream that waits for the legacy one");
  *stream = new ihipStream_t(current_device);
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().streams.insert(*stream);
  return hipSuccess;
}
HIP(hipError_t) hipStreamDestroy(hipStream_t stream) {
  ENTER();
  of(stream);
  {
    const std::lock_guard<std::mutex> lock(state().mutex);
    state().streams.erase(stream);
  }
  delete stream;
  return hipSuccess;
}
HIP(hipError_t) hipStreamSynchronize(hipStream_t stream) {
  ENTER();
  if (of(stream)->captured != nullptr) return failed(hipErrorStreamCaptureUnsupported);
  of(stream)->synchronize();
  return failed(state().fault);
}
HIP(hipError_t) hipEventCreateWithFlags(hipEvent_t* event, unsigned) {
  ENTER();
  const auto made = std::make_shared<ihipEvent_t>();
  *event = made.get();
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().events[*event] = made;
  return hipSuccess;
}
HIP(hipError_t) hipEventDestroy(hipEvent_t event) {
  ENTER();
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().events.erase(event);
  return hipSuccess;
}
HIP(hipError_t) hipEventRecord(hipEvent_t event, hipStream_t stream) {
  ENTER();
  if (of(stream)->captured != nullptr) forbidden("an event was recorded into a graph");
  const auto e = of(event);
  long number;
  {
    const std::lock_guard<std::mutex> lock(e->mutex);
    number = ++e->recorded;
  }
  of(stream)->enqueue([e, number] {
    const std::lock_guard<std::mutex> lock(e->mutex);
    e->reached = number;
    e->when = std::chrono::steady_clock::now();
    e->changed.notify_all();
  });
  return hipSuccess;
}
HIP(hipError_t) hipEventQuery(hipEvent_t event) {
  ENTER();
  const auto e = of(event);
  const std::lock_guard<std::mutex> lock(e->mutex);
  return e->reached >= e->recorded ? hipSuccess : failed(hipErrorNotReady);
}
HIP(hipError_t) hipEventSynchronize(hipEvent_t event) {
  ENTER();
  const auto e = of(event);
  std::unique_lock<std::mutex> lock(e->mutex);
  e->changed.wait(lock, [&, number = e->recorded] { return e->reached >= number; });
  return failed(state().fault);
}
HIP(hipError_t) hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop) {
  ENTER();
  *milliseconds = std::chrono::duration<float, std::milli>(of(stop)->when - of(start)->when).count();
  return hipSuccess;
}
HIP(hipError_t) hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned) {
  ENTER();
  const auto e = of(event);
  long number;
  {
    const std::lock_guard<std::mutex> lock(e->mutex);
    number = e->recorded;
  }
  of(stream)->enqueue([e, number] {
    std::unique_lock<std::mutex> lock(e->mutex);
    e->changed.wait(lock, [&] { return e->reached >= number; });
  });
  return hipSuccess;
}

// ------------------------------------------------------------------------------------------------------------ graphs

HIP(hipError_t) hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
  ENTER();
  thread_local hipStreamCaptureMode own{};
  std::swap(*mode, own);
  return hipSuccess;
}
HIP(hipError_t) hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
  ENTER();
  *status = of(stream)->captured ? hipStreamCaptureStatusActive : hipStreamCaptureStatusNone;
  return hipSuccess;
}
HIP(hipError_t) hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode) {
  ENTER();
  of(stream)->captured = new ihipGraph;
  return hipSuccess;
}
// Also where it fails the recording is over.
HIP(hipError_t) hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  std::unique_ptr<ihipGraph> recorded(std::exchange(of(stream)->captured, nullptr));
  ENTER();
  *graph = recorded.release();
  return hipSuccess;
}
HIP(hipError_t)
hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus* status, unsigned long long*, hipGraph_t* graph,
                           const hipGraphNode_t**, size_t*) {
  ENTER();
  *graph = of(stream)->captured;
  *status = *graph ? hipStreamCaptureStatusActive : hipStreamCaptureStatusNone;
  return hipSuccess;
}
HIP(hipError_t) hipGraphInstantiate(hipGraphExec_t* exec, hipGraph_t graph, hipGraphNode_t*, char*, size_t) {
  ENTER();
  *exec = new hipGraphExec{*graph};
  return hipSuccess;
}
HIP(hipError_t) hipGraphDestroy(hipGraph_t graph) {
  ENTER();
  delete graph;
  return hipSuccess;
}
HIP(hipError_t) hipGraphExecDestroy(hipGraphExec_t exec) {
  ENTER();
  delete exec;
  return hipSuccess;
}
HIP(hipError_t) hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream) {
  ENTER();
  for (const Work& work : exec->graph.work) of(stream)->enqueue(work);
  of(stream)->enqueue([kept = exec->graph.kept] {});  // as long as it runs, whoever destroys the graph
  return hipSuccess;
}
HIP(hipError_t)
hipUserObjectCreate(hipUserObject_t* object, void* argument, hipHostFn_t destroy, unsigned, unsigned) {
  ENTER();
  *object = new hipUserObject{std::shared_ptr<Kept>(new Kept{destroy, argument})};
  return hipSuccess;
}
HIP(hipError_t) hipUserObjectRelease(hipUserObject_t object, unsigned) {
  ENTER();
  delete object;
  return hipSuccess;
}
HIP(hipError_t) hipGraphRetainUserObject(hipGraph_t graph, hipUserObject_t object, unsigned, unsigned) {
  ENTER();
  graph->kept.push_back(object->kept);
  delete object;
  return hipSuccess;
}

}  // namespace tsr::hip::host
