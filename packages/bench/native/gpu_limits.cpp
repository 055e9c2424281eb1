// What an NVIDIA GPU can do at most, and attention as it was before it was fused; for `tessera bench`, as a process of its
// own. Driver, cuBLAS and NVRTC are opened at run time, so this is built with any C++ compiler and no toolkit:
//
//   gpu_limits DEVICE ceilings REPEATS             reading 1 GiB once; products of 8192 x 8192 matrices, fp16 in, fp32 sums
//   gpu_limits DEVICE unfused REPEATS B H S D      product, causal softmax, product; scores written and read in between
//
// DEVICE is a PCI address or a number. One JSON object on stdout; times in milliseconds. What goes wrong is one line on
// stderr, and exit 1. TESSERA_CUDA_LIBRARIES names folders to look for libraries in, before the usual places.
#include <dlfcn.h>
#include <glob.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  std::exit(1);
}

std::vector<std::string> folders() {
  std::vector<std::string> all{""};
  if (const char* own = std::getenv("TESSERA_CUDA_LIBRARIES")) {
    for (std::string rest = own; !rest.empty();) {
      const size_t colon = rest.find(':');
      all.insert(all.begin(), rest.substr(0, colon) + "/");
      rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
    }
  }
  // The toolkit's, and those that Python packages bring along.
  for (const char* pattern :
       {"/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/x86_64-linux/lib",
        "/usr/lib/python3*/*-packages/nvidia/*/lib", "/usr/local/lib/python3*/*-packages/nvidia/*/lib",
        "/opt/*/lib/python3*/*-packages/nvidia/*/lib"}) {
    glob_t found{};
    if (glob(pattern, 0, nullptr, &found) == 0) {
      for (size_t i = 0; i < found.gl_pathc; i++) all.push_back(std::string(found.gl_pathv[i]) + "/");
    }
    globfree(&found);
  }
  return all;
}

class Library {
 public:
  Library(const char* what, std::initializer_list<const char*> names) : what_(what) {
    std::string why;
    for (const std::string& folder : folders()) {
      for (const char* name : names) {
        handle_ = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (handle_) return;
        if (why.empty()) why = dlerror();
      }
    }
    fail(std::string(what) + " is not there: " + why);
  }
  template <class F>
  F get(const char* name) const {
    void* found = dlsym(handle_, name);
    if (!found) fail(std::string(what_) + " has no " + name);
    return reinterpret_cast<F>(found);
  }

 private:
  const char* what_;
  void* handle_ = nullptr;
};

using Address = unsigned long long;

// ---- the driver

struct Driver {
  Library library{"the NVIDIA driver", {"libcuda.so.1"}};
#define DRIVER(member, name, ...) int (*member)(__VA_ARGS__) = library.get<int (*)(__VA_ARGS__)>(name);
  DRIVER(init, "cuInit", unsigned)
  DRIVER(byOrdinal, "cuDeviceGet", int*, int)
  DRIVER(byAddress, "cuDeviceGetByPCIBusId", int*, const char*)
  DRIVER(retain, "cuDevicePrimaryCtxRetain", void**, int)
  DRIVER(current, "cuCtxSetCurrent", void*)
  DRIVER(wait, "cuCtxSynchronize", void)
  DRIVER(memory, "cuMemGetInfo_v2", size_t*, size_t*)
  DRIVER(alloc, "cuMemAlloc_v2", Address*, size_t)
  DRIVER(release, "cuMemFree_v2", Address)
  DRIVER(copyOut, "cuMemcpyDtoH_v2", void*, Address, size_t)
  DRIVER(eventCreate, "cuEventCreate", void**, unsigned)
  DRIVER(eventRecord, "cuEventRecord", void*, void*)
  DRIVER(eventWait, "cuEventSynchronize", void*)
  DRIVER(elapsed, "cuEventElapsedTime", float*, void*, void*)
  DRIVER(load, "cuModuleLoadData", void**, const void*)
  DRIVER(function, "cuModuleGetFunction", void**, void*, const char*)
  DRIVER(launch, "cuLaunchKernel", void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
         void**, void**)
#undef DRIVER
};

void check(int status, const char* what) {
  if (status != 0) fail(std::string(what) + " failed with " + std::to_string(status));
}

Driver& driver() {
  static Driver one;
  return one;
}

struct Memory {
  explicit Memory(size_t bytes) : bytes(bytes) { check(driver().alloc(&at, bytes), "allocating device memory"); }
  ~Memory() { driver().release(at); }
  Memory(const Memory&) = delete;
  Address at = 0;
  size_t bytes;
};

void* event() {
  void* made = nullptr;
  check(driver().eventCreate(&made, 0), "making an event");
  return made;
}

void record(void* at) { check(driver().eventRecord(at, nullptr), "recording an event"); }

double between(void* start, void* stop) {
  float ms = 0;
  check(driver().eventWait(stop), "waiting for the device");
  check(driver().elapsed(&ms, start, stop), "reading an event");
  return ms;
}

// ---- kernels, compiled at run time

const char* const kSource = R"(
typedef unsigned short half;
__device__ float wide(half x) { float y; asm("{ .reg .f16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }" : "=f"(y) : "h"(x)); return y; }
__device__ half narrow(float x) { half y; asm("{ .reg .f16 h; cvt.rn.f16.f32 h, %1; mov.b16 %0, h; }" : "=h"(y) : "f"(x)); return y; }

extern "C" __global__ void normals(half* to, unsigned long long count, unsigned seed) {
  unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    unsigned a = (unsigned)i * 2654435761u ^ (seed * 40503u + (unsigned)(i >> 32));
    a ^= a >> 16; a *= 0x7feb352du; a ^= a >> 15; a *= 0x846ca68bu; a ^= a >> 16;
    unsigned b = a * 747796405u + 2891336453u;
    b ^= b >> 15; b *= 0x2c1b3c6du; b ^= b >> 12;
    float u = (a + 1.0f) * 2.3283064e-10f, v = b * 2.3283064e-10f;
    to[i] = narrow(sqrtf(-2.0f * logf(fminf(u, 0.9999999f))) * cospif(2.0f * v));
  }
}

// Each thread adds up its share of 16-byte pieces; the sum is written where it can't be left out.
extern "C" __global__ void read(const uint4* from, unsigned long long count, unsigned* to) {
  unsigned sum = 0;
  unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {
    uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    sum += a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; i < count; i += step) sum += from[i].x;
  if (sum == 0x12345678u) *to = sum;
}

__device__ float across(float x, float* shared, bool largest) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    float other = __shfl_xor_sync(~0u, x, lanes);
    x = largest ? fmaxf(x, other) : x + other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  x = shared[0];
  for (int i = 1; i < 8; i++) x = largest ? fmaxf(x, shared[i]) : x + shared[i];
  return x;
}

// A block of 256 threads for each row of scores, in place; what lies behind the diagonal becomes 0.
extern "C" __global__ void softmax(half* scores, int size) {
  __shared__ float shared[8];
  int i = blockIdx.x % size;
  half* row = scores + (unsigned long long)blockIdx.x * size;
  float most = -1e30f, sum = 0;
  for (int j = threadIdx.x; j <= i; j += 256) most = fmaxf(most, wide(row[j]));
  most = across(most, shared, true);
  for (int j = threadIdx.x; j <= i; j += 256) sum += __expf(wide(row[j]) - most);
  sum = across(sum, shared, false);
  for (int j = threadIdx.x; j < size; j += 256) row[j] = j <= i ? narrow(__expf(wide(row[j]) - most) / sum) : 0;
}
)";

struct Kernels {
  void* normals = nullptr;
  void* read = nullptr;
  void* softmax = nullptr;

  Kernels() {
    const Library library("NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"});
    using Program = void*;
    Program program = nullptr;
    auto create = library.get<int (*)(Program*, const char*, const char*, int, const char* const*, const char* const*)>(
        "nvrtcCreateProgram");
    auto compile = library.get<int (*)(Program, int, const char* const*)>("nvrtcCompileProgram");
    auto size = library.get<int (*)(Program, size_t*)>("nvrtcGetPTXSize");
    auto text = library.get<int (*)(Program, char*)>("nvrtcGetPTX");
    check(create(&program, kSource, "limits.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
    const char* options[] = {"--gpu-architecture=compute_80"};
    if (compile(program, 1, options) != 0) {
      size_t length = 0;
      library.get<int (*)(Program, size_t*)>("nvrtcGetProgramLogSize")(program, &length);
      std::string log(length, 0);
      library.get<int (*)(Program, char*)>("nvrtcGetProgramLog")(program, log.data());
      fail("the kernels don't compile: " + log);
    }
    size_t length = 0;
    check(size(program, &length), "nvrtcGetPTXSize");
    std::string ptx(length, 0);
    check(text(program, ptx.data()), "nvrtcGetPTX");
    if (std::getenv("TESSERA_LIMITS_COMPILE_ONLY")) {
      std::puts(ptx.c_str());
      std::exit(0);
    }
    void* module = nullptr;
    check(driver().load(&module, ptx.c_str()), "loading the kernels");
    check(driver().function(&normals, module, "normals"), "finding a kernel");
    check(driver().function(&read, module, "read"), "finding a kernel");
    check(driver().function(&softmax, module, "softmax"), "finding a kernel");
  }
};

template <class... Arguments>
void launch(void* kernel, unsigned blocks, Arguments... arguments) {
  void* pointers[] = {&arguments...};
  check(driver().launch(kernel, blocks, 1, 1, 256, 1, 1, 0, nullptr, pointers, nullptr), "launching a kernel");
}

constexpr unsigned kBlocks = 4096;

void fill(const Kernels& kernels, const Memory& memory, unsigned seed) {
  launch(kernels.normals, kBlocks, memory.at, static_cast<unsigned long long>(memory.bytes / 2), seed);
}

// ---- cuBLAS

struct Blas {
  Library library{"cuBLAS", {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}};
  void* handle = nullptr;
  using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, long long, const void*, int,
                       int, long long, const void*, void*, int, int, long long, int, int, int);
  Gemm gemm = library.get<Gemm>("cublasGemmStridedBatchedEx");

  Blas() { check(library.get<int (*)(void**)>("cublasCreate_v2")(&handle), "cublasCreate"); }

  /** Column-major c = alpha * op(a) * b, `count` times; fp16, sums in fp32. */
  void product(bool transpose, int m, int n, int k, float alpha, Address a, int lda, long long strideA, Address b,
               int ldb, long long strideB, Address c, int ldc, long long strideC, int count) const {
    const float beta = 0;
    constexpr int kHalf = 2;         // CUDA_R_16F
    constexpr int kCompute32F = 68;  // CUBLAS_COMPUTE_32F
    constexpr int kDefault = -1;     // CUBLAS_GEMM_DEFAULT
    check(gemm(handle, transpose ? 1 : 0, 0, m, n, k, &alpha, reinterpret_cast<void*>(a), kHalf, lda, strideA,
               reinterpret_cast<void*>(b), kHalf, ldb, strideB, &beta, reinterpret_cast<void*>(c), kHalf, ldc, strideC,
               count, kCompute32F, kDefault),
          "a matrix product");
  }
};

std::string list(const std::vector<double>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); i++) {
    char number[32];
    std::snprintf(number, sizeof number, "%s%.6f", i ? ", " : "", values[i]);
    text += number;
  }
  return text + "]";
}

/** Device times of `repeats` runs, enqueued one behind the other. */
std::vector<double> timed(int repeats, const std::function<void()>& work) {
  for (int i = 0; i < 3; i++) work();
  std::vector<void*> marks{event()};
  record(marks[0]);
  for (int i = 0; i < repeats; i++) {
    work();
    marks.push_back(event());
    record(marks.back());
  }
  std::vector<double> times;
  for (size_t i = 1; i < marks.size(); i++) times.push_back(between(marks[i - 1], marks[i]));
  return times;
}

void ceilings(int repeats) {
  const Kernels kernels;
  constexpr size_t kBytes = size_t{1} << 30;
  const Memory memory(kBytes), sum(256);
  fill(kernels, memory, 1);
  const auto reads = timed(repeats, [&] { launch(kernels.read, 132 * 16, memory.at, kBytes / 16, sum.at); });
  std::printf("{\"read\": {\"bytes\": %zu, \"samples\": %s}", kBytes, list(reads).c_str());
  const Blas blas;
  constexpr int kSize = 8192;
  const size_t square = size_t{2} * kSize * kSize;
  const Memory a(square), b(square), c(square);
  fill(kernels, a, 2);
  fill(kernels, b, 3);
  const auto products = timed(
      repeats, [&] { blas.product(true, kSize, kSize, kSize, 1, a.at, kSize, 0, b.at, kSize, 0, c.at, kSize, 0, 1); });
  std::printf(", \"matmul16\": {\"flops\": %.0f, \"samples\": %s}}\n", 2.0 * kSize * kSize * kSize,
              list(products).c_str());
}

float wide(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const float value =
      exponent == 0 ? std::ldexp(float(bits & 1023), -24) : std::ldexp(float(1024 | (bits & 1023)), exponent - 25);
  return bits >> 15 ? -value : value;
}

std::vector<float> host(Address from, size_t count) {
  std::vector<uint16_t> bits(count);
  check(driver().copyOut(bits.data(), from, count * 2), "reading a result");
  std::vector<float> values(count);
  std::transform(bits.begin(), bits.end(), values.begin(), wide);
  return values;
}

/** Largest error over some rows of the first head, in double from the same inputs. */
double error(const Memory& q, const Memory& k, const Memory& v, const Memory& out, int size, int dim) {
  const size_t count = size_t(size) * dim;
  const auto hq = host(q.at, count), hk = host(k.at, count), hv = host(v.at, count), ho = host(out.at, count);
  double worst = 0;
  for (int i : {0, 1, size / 3, size - 1}) {
    std::vector<double> p(i + 1);
    double most = -1e300, sum = 0;
    for (int j = 0; j <= i; j++) {
      double s = 0;
      for (int d = 0; d < dim; d++) s += double(hq[size_t(i) * dim + d]) * hk[size_t(j) * dim + d];
      p[j] = s / std::sqrt(dim);
      most = std::max(most, p[j]);
    }
    for (double& one : p) sum += one = std::exp(one - most);
    for (int d = 0; d < dim; d++) {
      double expected = 0;
      for (int j = 0; j <= i; j++) expected += p[j] / sum * hv[size_t(j) * dim + d];
      const double off = std::fabs(expected - ho[size_t(i) * dim + d]);
      worst = off <= worst ? worst : off;  // NaN is as bad as it gets
      if (off != off) worst = 1e9;
    }
  }
  return worst;
}

void unfused(int repeats, int batch, int heads, int size, int dim) {
  const int count = batch * heads;
  const size_t each = size_t(size) * dim, square = size_t(size) * size;
  const size_t wanted = 2 * count * (4 * each + square);
  size_t available = 0, total = 0;
  check(driver().memory(&available, &total), "asking for free memory");
  if (wanted > available / 10 * 9) fail("the scores don't fit: " + std::to_string(wanted >> 20) + " MiB are needed");
  const Kernels kernels;
  const Blas blas;
  const Memory q(2 * count * each), k(2 * count * each), v(2 * count * each), out(2 * count * each),
      scores(2 * count * square);
  fill(kernels, q, 1);
  fill(kernels, k, 2);
  fill(kernels, v, 3);
  const auto first = [&] {
    blas.product(true, size, size, dim, 1 / std::sqrt(float(dim)), k.at, dim, each, q.at, dim, each, scores.at, size,
                 square, count);
  };
  const auto second = [&] { launch(kernels.softmax, unsigned(count) * size, scores.at, size); };
  const auto third = [&] {
    blas.product(false, dim, size, size, 1, v.at, dim, each, scores.at, size, square, out.at, dim, each, count);
  };
  const auto all = [&] { first(), second(), third(); };
  all();
  check(driver().wait(), "waiting for the device");
  const double off = error(q, k, v, out, size, dim);
  const auto samples = timed(repeats, all);
  // Stages by themselves, and one call from the host's point of view: what isn't in a stage is launching and waiting.
  void* marks[] = {event(), event(), event(), event()};
  std::vector<double> stages[3], walls;
  for (int run = 0; run < repeats; run++) {
    check(driver().wait(), "waiting for the device");
    const auto start = std::chrono::steady_clock::now();
    all();
    check(driver().wait(), "waiting for the device");
    walls.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    record(marks[0]), first(), record(marks[1]), second(), record(marks[2]), third(), record(marks[3]);
    for (int stage = 0; stage < 3; stage++) stages[stage].push_back(between(marks[stage], marks[stage + 1]));
  }
  std::printf(
      "{\"samples\": %s, \"error\": %.6g, \"wall\": %s, \"stages\": {\"product of q and k\": %s, \"softmax\": %s, "
      "\"product with v\": %s}}\n",
      list(samples).c_str(), off, list(walls).c_str(), list(stages[0]).c_str(), list(stages[1]).c_str(),
      list(stages[2]).c_str());
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) fail("usage: gpu_limits DEVICE ceilings REPEATS | gpu_limits DEVICE unfused REPEATS B H S D");
  const std::string device = arguments[1], what = arguments[2];
  const int repeats = std::max(1, std::atoi(arguments[3]));
  if (std::getenv("TESSERA_LIMITS_COMPILE_ONLY")) Kernels();
  check(driver().init(0), "the NVIDIA driver's start");
  int handle = 0;
  const bool address = device.find(':') != std::string::npos;
  check(address ? driver().byAddress(&handle, device.c_str()) : driver().byOrdinal(&handle, std::atoi(device.c_str())),
        "finding the device");
  void* context = nullptr;
  check(driver().retain(&context, handle), "opening the device");
  check(driver().current(context), "using the device");
  if (what == "ceilings") {
    ceilings(repeats);
  } else if (what == "unfused" && count == 8) {
    unfused(repeats, std::atoi(arguments[4]), std::atoi(arguments[5]), std::atoi(arguments[6]),
            std::atoi(arguments[7]));
  } else {
    fail("usage: see the top of the source");
  }
  return 0;
}
