// What a CPU can multiply and add at most, for `tessera bench`, as a process of its own: fused multiply-adds on registers alone, on as
// many threads as the back end computes with, of the widest vectors that this CPU has. A matrix product can't be faster.
//
//   cpu_limits REPEATS THREADS
//
// One JSON object on stdout: for f32, and for pairs of bf16 where there is an instruction for them, what it is, operations of a sample and
// each sample's milliseconds.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

/// Runs so many steps, and returns something that depends on all of them.
struct Kernel {
  const char* name;
  double (*run)(int64_t steps);
  double operations;  // of a step
};

// Chains that don't wait for each other: more than latency times the units of any CPU in use, and no more than its registers.
#define TSR_CHAINS(count, vector, zero, step)          \
  vector acc[count];                                   \
  for (auto& a : acc) a = zero;                        \
  for (int64_t n = 0; n < steps; n++) {                \
    _Pragma("GCC unroll 32") for (auto& a : acc) step; \
    asm volatile("");                                  \
  }                                                    \
  vector sum = acc[0];

#if defined(__x86_64__)
__attribute__((target("avx512f"))) double avx512(int64_t steps) {
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
  TSR_CHAINS(24, __m512, y, a = _mm512_fmadd_ps(a, x, y))
  for (const auto& a : acc) sum = _mm512_add_ps(sum, a);
  return _mm512_cvtss_f32(sum);
}
__attribute__((target("avx512f,avx512bf16"))) double bf16(int64_t steps) {
  const __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f003f00);  // 0.5
  TSR_CHAINS(24, __m512, _mm512_setzero_ps(), a = _mm512_dpbf16_ps(a, x, x))
  for (const auto& a : acc) sum = _mm512_add_ps(sum, a);
  return _mm512_cvtss_f32(sum);
}
__attribute__((target("avx2,fma"))) double avx2(int64_t steps) {
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
  TSR_CHAINS(12, __m256, y, a = _mm256_fmadd_ps(a, x, y))
  for (const auto& a : acc) sum = _mm256_add_ps(sum, a);
  return sum[0];
}
double sse(int64_t steps) {
  const __m128 x = _mm_set1_ps(0.999f), y = _mm_set1_ps(1e-3f);
  TSR_CHAINS(12, __m128, y, a = _mm_add_ps(_mm_mul_ps(a, x), y))
  for (const auto& a : acc) sum = _mm_add_ps(sum, a);
  return sum[0];
}
Kernel f32() {
  if (__builtin_cpu_supports("avx512f")) return {"AVX-512", avx512, 24 * 16 * 2};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {"AVX2 and FMA", avx2, 12 * 8 * 2};
  return {"SSE2", sse, 12 * 4 * 2};
}
Kernel f16() {
  if (__builtin_cpu_supports("avx512bf16")) return {"AVX-512 BF16", bf16, 24 * 32 * 2};
  return {nullptr, nullptr, 0};
}
#elif defined(__aarch64__)
double neon(int64_t steps) {
  const float32x4_t x = vdupq_n_f32(0.999f), y = vdupq_n_f32(1e-3f);
  TSR_CHAINS(24, float32x4_t, y, a = vfmaq_f32(y, a, x))
  for (const auto& a : acc) sum = vaddq_f32(sum, a);
  return vaddvq_f32(sum);
}
Kernel f32() { return {"NEON", neon, 24 * 4 * 2}; }
Kernel f16() { return {nullptr, nullptr, 0}; }
#else
Kernel f32() { return {nullptr, nullptr, 0}; }
Kernel f16() { return {nullptr, nullptr, 0}; }
#endif

std::atomic<double> sink;

double milliseconds(const Kernel& kernel, int64_t steps, int threads) {
  std::vector<std::thread> all;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 1; i < threads; i++) all.emplace_back([&] { sink = kernel.run(steps); });
  sink = kernel.run(steps);
  for (auto& thread : all) thread.join();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

void measure(const char* type, const Kernel& kernel, int repeats, int threads) {
  int64_t steps = 10000;
  const auto once = [&] { return milliseconds(kernel, steps, threads); };
  // Beside 10 ms the start of a thread is nothing. The least of three: others may have had the processor.
  while (std::min({once(), once(), once()}) < 10) steps *= 2;
  const double operations = kernel.operations * static_cast<double>(steps) * threads;
  std::printf("\"%s\":{\"method\":\"%s\",\"flops\":%.0f,\"samples\":[", type, kernel.name, operations);
  for (int i = 0; i < repeats; i++) std::printf("%s%.6f", i > 0 ? "," : "", once());
  std::printf("]}");
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc == 3 ? std::atoi(argv[1]) : 0, threads = argc == 3 ? std::atoi(argv[2]) : 0;
  if (repeats < 1 || threads < 1) {
    std::fprintf(stderr, "usage: %s REPEATS THREADS\n", argv[0]);
    return 1;
  }
  const Kernel single = f32(), half = f16();
  if (!single.run) {
    std::fprintf(stderr, "this processor's vectors aren't known\n");
    return 1;
  }
  std::printf("{");
  measure("f32", single, repeats, threads);
  if (half.run) {
    std::printf(",");
    measure("bf16", half, repeats, threads);
  }
  std::printf("}\n");
  return 0;
}
