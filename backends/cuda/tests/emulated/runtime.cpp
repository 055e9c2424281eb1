#include "runtime.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "played/failing.h"

using Work = std::function<void()>;

// Graphs, recorded or ready to launch, that nobody has destroyed.
struct Counted {
  static inline std::atomic<int> alive{0};
  Counted() { ++alive; }
  Counted(const Counted&) { ++alive; }
  Counted& operator=(const Counted&) = default;
  ~Counted() { --alive; }
};

// What a graph keeps alive: destroyed with the last graph that has it.
struct UserObject {
  cudaHostFn_t destroy;
  void* argument;
  ~UserObject() { destroy(argument); }
};
struct CUuserObject_st {
  std::shared_ptr<UserObject> object;
};
struct CUgraph_st : Counted {
  std::vector<Work> work;
  std::vector<std::shared_ptr<UserObject>> objects;
};
struct CUgraphExec_st {
  CUgraph_st graph;
};

struct CUstream_st {
  CUstream_st() : thread_([this] { run(); }) {}
  ~CUstream_st() {
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

  CUgraph_st* captured = nullptr;  ///< what is being recorded: it goes with a stream that dies meanwhile

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

struct CUevent_st {
  std::mutex mutex;
  std::condition_variable changed;
  long recorded = 0, reached = 0;
  std::chrono::steady_clock::time_point when{};
};

namespace {

constexpr size_t kDeviceMemory = size_t{1} << 30;
constexpr size_t kTakenAtOnce = 64 << 10;

enum class Kind {
  kPageable,
  kPinned,
  kDevice
};
struct Block {
  size_t bytes;
  Kind kind;
};

// Never destroyed: streams may outlive main().
struct State {
  std::mutex mutex;
  std::atomic<int> pools{0};  ///< made
  std::map<char*, Block> blocks;
  size_t used = 0;
  std::set<CUstream_st*> streams;
  std::map<cudaEvent_t, std::shared_ptr<CUevent_st>> events;
  CUstream_st* const legacy = new CUstream_st;
};
State& state() {
  static State& all = *new State;
  return all;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local bool asked_in_vain = false;  ///< the last cudaPointerGetAttributes failed

cudaError_t failed(cudaError_t error) {
  last_error = error;
  return error;
}

// Of every function: what STUB_FAIL wants of this call.
#define ENTER() \
  if (const int told = stub_told(__func__)) return failed(static_cast<cudaError_t>(told))

[[noreturn]] void forbidden(const char* what) {
  std::fprintf(stderr, "emulated CUDA: %s\n", what);
  std::abort();
}

CUstream_st* of(cudaStream_t stream) { return stream ? stream : state().legacy; }

std::shared_ptr<CUevent_st> of(cudaEvent_t event) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  const auto found = state().events.find(event);
  if (found == state().events.end()) forbidden("an event that isn't there");
  return found->second;
}

cudaError_t allocate(void** data, size_t bytes, Kind kind) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (bytes > kDeviceMemory || (kind == Kind::kDevice && s.used + bytes > kDeviceMemory)) {
    return failed(cudaErrorMemoryAllocation);
  }
  auto* const memory = static_cast<char*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  std::memset(memory, 0xcd, bytes);
  s.blocks[memory] = {bytes, kind};
  if (kind == Kind::kDevice) s.used += bytes;
  *data = memory;
  return cudaSuccess;
}

void release(void* data) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = s.blocks.find(static_cast<char*>(data));
  if (found == s.blocks.end()) forbidden("freeing what was never allocated");
  if (found->second.kind == Kind::kDevice) s.used -= found->second.bytes;
  std::memset(data, 0xdd, found->second.bytes);  // whoever still uses it shall notice
  s.blocks.erase(found);
  std::free(data);
}

Kind kind_of(const void* data) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  const auto* const at = static_cast<const char*>(data);
  auto next = s.blocks.upper_bound(const_cast<char*>(at));
  if (next == s.blocks.begin()) return Kind::kPageable;
  --next;
  return at < next->first + next->second.bytes ? next->second.kind : Kind::kPageable;
}

__attribute__((destructor)) void tell_what_is_left() {
  State& s = state();
  std::set<CUstream_st*> streams;
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    streams = s.streams;
  }
  for (CUstream_st* stream : streams) stream->synchronize();  // memory may be on its way back
  stub_left(s.blocks.size(), s.pools, streams.size(), s.events.size(), Counted::alive);
}

}  // namespace

cudaError_t emulated::launched() {
  if (const int told = stub_told("cudaLaunchKernel")) return failed(static_cast<cudaError_t>(told));
  return cudaSuccess;
}

void emulated::enqueue(cudaStream_t stream, Work work) { of(stream)->enqueue(std::move(work)); }

// ---------------------------------------------------------------------------------------------------- errors, device

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation           ? "cudaErrorMemoryAllocation"
         : error == cudaErrorStreamCaptureUnsupported ? "cudaErrorStreamCaptureUnsupported"
                                                      : "cudaErrorOfEmulation";
}
const char* cudaGetErrorString(cudaError_t) { return "words of the stub"; }
cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  ENTER();
  *value = std::getenv("EMULATED_NO_POOLS") == nullptr;
  return cudaSuccess;
}

// ------------------------------------------------------------------------------------------------------------ memory

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  ENTER();
  ++state().pools;
  static char any;
  *pool = reinterpret_cast<cudaMemPool_t>(&any);
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  ENTER();
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  ENTER();
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes, cudaMemPool_t, cudaStream_t) {
  ENTER();
  return allocate(data, bytes, Kind::kDevice);
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  ENTER();
  of(stream)->enqueue([data] { release(data); });
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, size_t bytes) {
  ENTER();
  return allocate(data, bytes, Kind::kDevice);
}
cudaError_t cudaFree(void* data) {
  ENTER();
  {
    const std::lock_guard<std::mutex> lock(state().mutex);
    for (CUstream_st* stream : state().streams) stream->synchronize();
  }
  state().legacy->synchronize();
  release(data);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  ENTER();
  const std::lock_guard<std::mutex> lock(state().mutex);
  *free = kDeviceMemory - state().used;
  *total = kDeviceMemory;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  ENTER();
  return allocate(data, bytes, Kind::kPinned);
}
cudaError_t cudaFreeHost(void* data) {
  ENTER();
  release(data);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  asked_in_vain = true;
  ENTER();
  asked_in_vain = false;
  const Kind kind = kind_of(data);
  *attributes = cudaPointerAttributes{};
  attributes->type = kind == Kind::kPageable ? cudaMemoryTypeUnregistered
                     : kind == Kind::kPinned ? cudaMemoryTypeHost
                                             : cudaMemoryTypeDevice;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  ENTER();
  const bool inwards = kind == cudaMemcpyHostToDevice;
  if (kind != cudaMemcpyDeviceToDevice && kind_of(inwards ? from : to) == Kind::kPageable) {
    if (of(stream)->captured != nullptr) {
      if (asked_in_vain) return failed(cudaErrorStreamCaptureUnsupported);
      forbidden("a copy of pageable memory was captured");
    }
    if (asked_in_vain) {  // whoever wasn't told what memory it is gets what CUDA does then
      of(stream)->synchronize();
      std::memcpy(to, from, bytes);
      return cudaSuccess;
    }
    if (!inwards || bytes > kTakenAtOnce) forbidden("a copy that waits for its stream");
    const auto* const begin = static_cast<const char*>(from);
    of(stream)->enqueue(
        [to, taken = std::vector<char>(begin, begin + bytes)] { std::memcpy(to, taken.data(), taken.size()); });
    return cudaSuccess;
  }
  of(stream)->enqueue([=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  ENTER();
  of(stream)->enqueue([=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  ENTER();
  of(stream)->enqueue([=] { function(argument); });
  return cudaSuccess;
}

// --------------------------------------------------------------------------------------------------- streams, events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  ENTER();
  *stream = new CUstream_st;
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ENTER();
  {
    const std::lock_guard<std::mutex> lock(state().mutex);
    state().streams.erase(stream);
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENTER();
  if (of(stream)->captured != nullptr) return failed(cudaErrorStreamCaptureUnsupported);
  of(stream)->synchronize();
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  ENTER();
  const auto made = std::make_shared<CUevent_st>();
  *event = made.get();
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().events[*event] = made;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  ENTER();
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().events.erase(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
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
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  ENTER();
  const auto e = of(event);
  const std::lock_guard<std::mutex> lock(e->mutex);
  return e->reached >= e->recorded ? cudaSuccess : failed(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENTER();
  const auto e = of(event);
  std::unique_lock<std::mutex> lock(e->mutex);
  e->changed.wait(lock, [&, number = e->recorded] { return e->reached >= number; });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  ENTER();
  *milliseconds = std::chrono::duration<float, std::milli>(of(stop)->when - of(start)->when).count();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
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
  return cudaSuccess;
}

// ------------------------------------------------------------------------------------------------------------ graphs

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  ENTER();
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  ENTER();
  *status = of(stream)->captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  ENTER();
  of(stream)->captured = new CUgraph_st;
  return cudaSuccess;
}
// Also where it fails the recording is over.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  std::unique_ptr<CUgraph_st> recorded(std::exchange(of(stream)->captured, nullptr));
  ENTER();
  *graph = recorded.release();
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*,
                                     cudaGraph_t* graph, const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  ENTER();
  *graph = of(stream)->captured;
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  ENTER();
  *exec = new CUgraphExec_st{*graph};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  ENTER();
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  ENTER();
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  ENTER();
  for (const Work& work : exec->graph.work) of(stream)->enqueue(work);
  of(stream)->enqueue([objects = exec->graph.objects] {});  // as long as it runs, whoever destroys the graph
  return cudaSuccess;
}
cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* argument, cudaHostFn_t destroy, unsigned, unsigned) {
  ENTER();
  *object = new CUuserObject_st{std::shared_ptr<UserObject>(new UserObject{destroy, argument})};
  return cudaSuccess;
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned) {
  ENTER();
  delete object;
  return cudaSuccess;
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned, unsigned) {
  ENTER();
  graph->objects.push_back(object->object);
  delete object;
  return cudaSuccess;
}
