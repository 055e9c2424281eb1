// What this machine could do at most, for the tables of run.mjs: fp32 multiply-adds, and reading memory once.
//
//   ceilings THREADS        prints JSON: {"gflops": …, "gbytes": …}, best of several runs
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr int kLanes = sizeof(void*) * 2;  // 16 floats: one AVX-512 register, two of AVX2, four of NEON
using vf = float __attribute__((vector_size(kLanes * 4)));

template <class F>
double best_seconds(int threads, F&& body) {
  double best = 1e9;
  for (int run = 0; run < 9; run++) {
    std::vector<std::thread> all;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < threads; i++) all.emplace_back([&, i] { body(i); });
    for (std::thread& thread : all) thread.join();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

constexpr int kChains = 12;
constexpr long kSteps = 4'000'000;

float multiply_adds(float factor) {
  vf a = vf{} + factor, b = a * 0.5f;
  vf s0{}, s1{}, s2{}, s3{}, s4{}, s5{}, s6{}, s7{}, s8{}, s9{}, s10{}, s11{};
  for (long i = 0; i < kSteps; i++) {
    asm volatile("" : "+g"(i));
    s0 += a * b, s1 += a * b, s2 += a * b, s3 += a * b, s4 += a * b, s5 += a * b;
    s6 += a * b, s7 += a * b, s8 += a * b, s9 += a * b, s10 += a * b, s11 += a * b;
    asm volatile("" : "+m"(factor));
#if defined(__AVX512F__)
    asm volatile("" : "+v"(a), "+v"(b));
#endif
  }
  const vf sum = s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7 + s8 + s9 + s10 + s11;
  return sum[0] + factor;
}

float read_once(const float* from, size_t count) {
  vf s0{}, s1{}, s2{}, s3{};
  for (size_t i = 0; i < count; i += 4 * kLanes) {
    const auto* at = reinterpret_cast<const vf*>(from + i);
    s0 += at[0], s1 += at[1], s2 += at[2], s3 += at[3];
  }
  return (s0 + s1 + s2 + s3)[0];
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 1;
  volatile float sink = 0;
  const double work = best_seconds(threads, [&](int) { sink = multiply_adds(0.25f); });
  const size_t bytes = size_t{256} << 20;
  std::vector<float*> memory;
  for (int i = 0; i < threads; i++) {
    memory.push_back(static_cast<float*>(std::aligned_alloc(4096, bytes)));
    std::fill_n(memory.back(), bytes / 4, 1.0f);
  }
  const double reading =
      best_seconds(threads, [&](int i) { sink = read_once(memory[static_cast<size_t>(i)], bytes / 4); });
  std::printf("{\"gflops\": %.1f, \"gbytes\": %.1f}\n", 2.0 * kLanes * kChains * kSteps * threads / work / 1e9,
              static_cast<double>(bytes) * threads / reading / 1e9);
  return 0;
}
