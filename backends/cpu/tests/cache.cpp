// Tiles and memory: how large the L2 cache is, what that makes of a tile, and that no thread needs more than 4 MB.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "catalogue.h"
#include "count.h"

namespace {

using tsr::Problem;
using tsr::Variant;
using tsr::cpu::Plan;

// A folder like sysfs has for a core: L1 first, then L2.
int64_t share_of(const char* size, const char* cores) {
  char folder[] = "/tmp/tessera-cache-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const auto file = [&](const std::string& name, const char* text) {
    const std::string path = folder + ("/" + name);
    if (text == nullptr) {
      mkdir(path.c_str(), 0700);
    } else {
      std::ofstream(path) << text << "\n";
    }
    return path;
  };
  std::vector<std::string> made{file("index0", nullptr),
                                file("index0/level", "1"),
                                file("index0/size", "32K"),
                                file("index1", nullptr),
                                file("index1/level", "2"),
                                file("index1/size", size),
                                file("index1/shared_cpu_list", cores)};
  const int64_t share = tsr::cpu::l2_share(folder);
  while (!made.empty()) {
    std::remove(made.back().c_str());
    made.pop_back();
  }
  rmdir(folder);
  return share;
}

Problem problem(tsr_dtype type, int64_t queries, int64_t keys, int64_t heads, int64_t kv_heads, int64_t dim) {
  Problem p;
  p.batch = 1;
  p.heads = heads;
  p.kv_heads = kv_heads;
  p.group = heads / kv_heads;
  p.dim = p.value_dim = dim;
  p.query_rows = p.max_queries = queries;
  p.key_rows = p.max_keys = keys;
  p.q.dtype = p.out.dtype = type == TSR_Q8_0 ? TSR_F32 : type;
  p.k.dtype = p.v.dtype = type;
  return p;
}

}  // namespace

int main() {
  CHECK(share_of("512K", "0") == 512 << 10);
  CHECK(share_of("2M", "0,64") == 1 << 20);
  CHECK(share_of("4096K", "0-1,8-9") == 1 << 20);
  CHECK(share_of("none", "0") == 0);
  CHECK(tsr::cpu::l2_share("/nowhere") == 0);
  CHECK(tsr::cpu::probe_device().l2_bytes > 0);

  unsetenv("TESSERA_CPU_ISA");
  std::vector<Variant> rows;
  CHECK(tsr::cpu::make_catalogue(tsr::cpu::probe_device(), &rows).ok());
  for (const Variant& row : rows) {
    if (!row.usable) continue;  // plans, too, are made by code for the set
    const auto plan = [&](const Problem& p, int threads, int64_t l2) {
      return tsr::cpu::kernel_of(row, p, {threads, l2}).plan;
    };
    for (const tsr_dtype type : {TSR_F32, TSR_BF16, TSR_Q8_0}) {
      for (const int64_t dim : {64, 128, 256, 512}) {
        for (const int64_t keys : {1, 200, 4096, 1 << 20}) {
          for (const int64_t queries : {int64_t{1}, keys}) {
            for (const int64_t l2 : {256 << 10, 1 << 20, 4 << 20}) {
              const Plan one = plan(problem(type, queries, keys, 32, 8, dim), 1, l2);
              if (one.workspace_bytes > 4000000) {
                std::printf("%s: %lld bytes at D %lld, %lld x %lld\n", row.name,
                            static_cast<long long>(one.workspace_bytes), static_cast<long long>(dim),
                            static_cast<long long>(queries), static_cast<long long>(keys));
              }
              CHECK(one.workspace_bytes <= 4000000);
            }
          }
        }
      }
    }
    if (row.family != TSR_FAMILY_PREFILL) continue;
    // A machine's tile is the same for any number of threads and queries; a larger cache makes it no smaller.
    int32_t last = 0;
    for (const int64_t l2 : {128 << 10, 512 << 10, 1 << 20, 16 << 20}) {
      const int32_t keys = plan(problem(TSR_F32, 300, 4096, 8, 8, 256), 1, l2).tile_k;
      CHECK(keys >= last && keys >= 32 && keys <= 256 && (keys & (keys - 1)) == 0);
      CHECK(plan(problem(TSR_F32, 9000, 4096, 8, 8, 256), 7, l2).tile_k == keys);
      last = keys;
    }
    CHECK(last >= 128 && plan(problem(TSR_F32, 300, 4096, 8, 8, 256), 1, 128 << 10).tile_k == 32);
    CHECK(plan(problem(TSR_F32, 300, 40, 8, 8, 256), 1, 1 << 20).tile_k == 64);  // no more than there are
  }
  return tsr::check::finish();
}
