// Random calls of a back end: attention through every kernel variant, appends to a cache, merges, each held to float64:
//   volume BACKEND.so [--problems 1000] [--seed 1] [--first 0] [--seconds S] [--work 27] [--kernel NAME] [--least N]
// Problem n of seed s is the same everywhere; --first n --problems 1 repeats it and tells what it was. --work is the base-2
// logarithm of the multiplications of the largest. A kernel that the back end lists and that had fewer than N results
// (of 500 problems or more: 1) is a failure. Exit code 77: no device.
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "device.h"
#include "oracle.h"

namespace {

using fuzz::Device;
using fuzz::Oracle;
using fuzz::Problem;

struct Options {
  const char* library = nullptr;
  long problems = 1000, first = 0;
  uint64_t seed = 1;
  double seconds = 1e9;
  int work = 27;
  long least = -1;
  std::string kernel;
};

/// Multiplications of an oracle: beyond, it solves a sample of the rows.
constexpr int64_t kWork = 1 << 20;

struct Oracles {
  Oracle exact;
  std::optional<Oracle> flushed;
};

struct Results {
  long all = 0, softcap = 0, tiles = 0;
};

struct Counts {
  long problems = 0, results = 0, declined = 0, failed = 0;
  double deviation = 0;
  std::map<std::string, Results> kernels;
};

class Run {
 public:
  Run(Device& device, const Options& options, Counts& counts) : device_(device), options_(options), counts_(counts) {}

  void problem(long number) {
    const uint64_t seed = fuzz::Random(options_.seed ^ fuzz::Random(static_cast<uint64_t>(number)).bits()).bits();
    number_ = number;
    counts_.problems++;
    if (seed % 8 == 0) {
      append(seed);
    } else if (seed % 16 == 1) {
      merge(seed);
    } else {
      attention(seed);
    }
  }

 private:
  void attention(uint64_t seed) {
    Problem p(seed, {int64_t{1} << options_.work, device_.host_memory()});
    const fuzz::Random sampling(seed + 1);
    Oracles oracles{{p, kWork, sampling, false}, std::nullopt};
    for (const std::string& kernel : device_.kernels()) {
      if (device_.flushes(kernel) && !oracles.flushed) oracles.flushed.emplace(p, kWork, sampling, true);
    }
    if (options_.problems == 1) std::printf("%s", p.text().c_str());
    device_.place(seed, p.inputs(), p.outputs());
    // The free choice first. By its name and with the splits that it said, that variant gives the same bits again.
    const Device::Outcome chosen = attend(p, oracles, "", p.splits);
    const std::vector<uint8_t> bytes = chosen.status == TSR_OK ? bytes_of(p) : std::vector<uint8_t>();
    for (const std::string& kernel : device_.kernels()) {
      if (!options_.kernel.empty() && options_.kernel != kernel) continue;
      const bool again = chosen.status == TSR_OK && kernel == chosen.kernel;
      const Device::Outcome named = attend(p, oracles, kernel, again ? chosen.splits : p.splits);
      if (again && (named.status != TSR_OK || bytes_of(p) != bytes)) fail(p, kernel, "other bits by its name");
    }
    check_inputs(p);
  }

  void append(uint64_t seed) {
    fuzz::Append a(seed);
    if (options_.problems == 1) std::printf("%s", a.text().c_str());
    device_.place(seed, a.inputs(), a.outputs());
    settle(
        a, "(append)", device_.append(a), [&] { return a.judge(device_.host_memory()); },
        [](const fuzz::Tensor& t) { return t.intact(); });
    check_inputs(a);
  }

  void merge(uint64_t seed) {
    fuzz::Merge m(seed);
    if (options_.problems == 1) std::printf("%s", m.text().c_str());
    for (fuzz::Tensor* t : m.outputs()) t->spoil();
    device_.place(seed, m.inputs(), m.outputs());
    const auto judge = [&] {
      for (fuzz::Tensor* t : m.outputs()) {
        if (!t->intact()) return "bytes around " + t->name() + " were written";
      }
      return m.judge();
    };
    settle(m, "(merge)", device_.merge(m), judge, [](const fuzz::Tensor& t) { return t.untouched(); });
    check_inputs(m);
  }

  /// What came of a call that has no variants: right, or declined with nothing written.
  template <class Call, class Judge, class Untouched>
  void settle(Call& call, const char* name, const Device::Outcome& outcome, Judge judge, Untouched untouched) {
    if (!outcome.trouble.empty()) {
      fail(call, name, outcome.trouble);
    } else if (outcome.status == TSR_OK) {
      const std::string wrong = judge();
      if (!wrong.empty()) fail(call, name, wrong);
      counts_.results++;
      counts_.kernels[name].all++;
    } else {
      for (fuzz::Tensor* t : call.outputs()) {
        if (!untouched(*t)) fail(call, name, "declined, but wrote to " + t->name());
      }
      if (device_.complete()) fail(call, name, "declined: " + outcome.text);
      counts_.declined++;
    }
  }

  template <class Call>
  void check_inputs(Call& call) {
    for (fuzz::Tensor* t : call.inputs()) {
      if (!device_.fetch(*t) || !t->intact()) fail(call, "-", t->name() + ", an input, was written");
    }
    device_.release();
  }

  Device::Outcome attend(Problem& p, const Oracles& oracles, const std::string& kernel, int splits) {
    const std::string name = kernel.empty() ? "(free choice)" : kernel;
    for (fuzz::Tensor* t : p.outputs()) t->spoil();
    const Device::Outcome outcome = device_.attend(p, kernel, splits);
    if (!outcome.trouble.empty()) {
      fail(p, name, outcome.trouble);
    } else if (outcome.status == TSR_OK) {
      const bool flushes = device_.flushes(kernel.empty() ? outcome.kernel : kernel);
      const std::string wrong = (flushes ? *oracles.flushed : oracles.exact).judge(&counts_.deviation);
      if (!wrong.empty()) fail(p, name, wrong);
      for (fuzz::Tensor* t : p.outputs()) {
        if (!t->intact()) fail(p, name, "bytes around " + t->name() + " were written");
      }
      counts_.results++;
      if (!oracles.exact.rows().empty()) {  // there was something to compute
        counts_.kernels[name].all++;
        counts_.kernels[name].softcap += p.softcap > 0;
        counts_.kernels[name].tiles += p.queries > 128 && p.keys > 128;
      }
    } else {
      for (fuzz::Tensor* t : p.outputs()) {
        if (!t->untouched()) fail(p, name, "declined, but wrote to " + t->name());
      }
      if (device_.complete() && kernel.empty() && p.splits <= 1) fail(p, name, "declined: " + outcome.text);
      counts_.declined++;
    }
    return outcome;
  }

  static std::vector<uint8_t> bytes_of(Problem& p) {
    std::vector<uint8_t> all;
    for (fuzz::Tensor* t : p.outputs()) all.insert(all.end(), t->memory(), t->memory() + t->bytes());
    return all;
  }

  template <class Call>
  void fail(const Call& p, const std::string& kernel, const std::string& what) {
    counts_.failed++;
    std::printf(
        "MISMATCH problem %ld of seed %llu, %s: %s\n%s  again: volume %s --seed %llu --first %ld --problems 1 --work "
        "%d\n",
        number_, static_cast<unsigned long long>(options_.seed), kernel.c_str(), what.c_str(), p.text().c_str(),
        options_.library, static_cast<unsigned long long>(options_.seed), number_, options_.work);
    std::fflush(stdout);
  }

  Device& device_;
  const Options& options_;
  Counts& counts_;
  long number_ = 0;
};

bool parse(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; i++) {
    const std::string arg = argv[i];
    if (arg.compare(0, 2, "--") != 0) {
      o->library = argv[i];
      continue;
    }
    if (++i == argc) return false;
    if (arg == "--problems")
      o->problems = std::atol(argv[i]);
    else if (arg == "--seed")
      o->seed = std::strtoull(argv[i], nullptr, 10);
    else if (arg == "--first")
      o->first = std::atol(argv[i]);
    else if (arg == "--seconds")
      o->seconds = std::atof(argv[i]);
    else if (arg == "--work")
      o->work = std::atoi(argv[i]);
    else if (arg == "--least")
      o->least = std::atol(argv[i]);
    else if (arg == "--kernel")
      o->kernel = argv[i];
    else
      return false;
  }
  return o->library != nullptr && o->work >= 10 && o->work <= 40;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, &options)) {
    std::fprintf(
        stderr,
        "usage: %s BACKEND.so [--problems N] [--seed S] [--first N] [--seconds S] [--work BITS] [--kernel NAME] "
        "[--least N]\n",
        argv[0]);
    return 2;
  }
  Device device;
  std::string trouble;
  const int opened = device.open(options.library, &trouble);
  if (opened != 0) {
    std::printf("%s\n", trouble.c_str());
    return opened;
  }
  Counts counts;
  Run run(device, options, counts);
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  for (long n = 0; n < options.problems && counts.failed < 20 && elapsed() < options.seconds; n++)
    run.problem(options.first + n);

  std::printf(
      "%s, seed %llu: %ld problems, %ld results, %ld declined, %ld mismatches, %.1f s; largest error %.3f of its "
      "bound\n",
      device.name().c_str(), static_cast<unsigned long long>(options.seed), counts.problems, counts.results,
      counts.declined, counts.failed, elapsed(), counts.deviation);
  for (const auto& [kernel, results] : counts.kernels)
    std::printf("  %s: %ld, with a soft cap %ld, of more than 128 queries and keys %ld\n", kernel.c_str(), results.all,
                results.softcap, results.tiles);
  const long least = options.least >= 0 ? options.least : counts.problems >= 500 && options.kernel.empty() ? 1 : 0;
  for (const std::string& kernel : device.kernels()) {
    if (counts.kernels[kernel].all >= least) continue;
    std::printf("  %s: %ld results, must be %ld or more\n", kernel.c_str(), counts.kernels[kernel].all, least);
    counts.failed++;
  }
  std::printf("::tessera {\"passed\":%ld,\"failed\":%ld,\"skipped\":0}\n", counts.problems - (counts.failed > 0),
              counts.failed);
  return counts.failed > 0 ? 1 : 0;
}
