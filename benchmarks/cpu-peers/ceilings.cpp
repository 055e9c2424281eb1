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

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
using vf = float __attribute__((vector_size(kLanes * 4)));

/// Keeps a value in a register, unknown to the compiler.
#if defined(__x86_64__)
#define KEEP(x) asm volatile("" : "+v"(x))
#else
#define KEEP(x) asm volatile("" : "+w"(x))
#endif

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

#define EACH(what) \
  what(s0) what(s1) what(s2) what(s3) what(s4) what(s5) what(s6) what(s7) what(s8) what(s9) what(s10) what(s11)

float multiply_adds() {
  vf a = vf{} + 0.25f, b = a;
  KEEP(a);
  KEEP(b);
#define DECLARE(s) \
  vf s{};          \
  KEEP(s);
  EACH(DECLARE)
  for (long i = 0; i < kSteps; i++) {
#define STEP(s)  \
  s = s * a + b; \
  KEEP(s);
    EACH(STEP)
  }
  vf sum{};
#define SUM(s) sum += s;
  EACH(SUM)
  return sum[0];
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
  const double work = best_seconds(threads, [&](int) { sink = multiply_adds(); });
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
