// The whole way of a FLASH_ATTN_EXT node through the plug-in and the CPU engine, against double precision; without a runtime:
// tensors are made by hand, and of ggml's functions there are stand-ins. argv[1]: the folder of libtessera-cpu.so.
#include "problem.h"

namespace {

void run(Engine& engine, const Case& c) {
  Problem p = make(c);
  connect(&p);
  AttentionOp op;
  std::string why;
  const uint64_t before = c.counted != nullptr ? c.counted->load() : 0;
  if (!read_op(&p.out.t, &op, &why) || !host_supports(engine, op, &why)) return expect(false, c.name + ": " + why);
  std::unique_ptr<Attention> attention(host_attention(engine));
  attention->set_threads(c.threads);
  if (attention->compute(op, &why) != Outcome::done) return expect(false, c.name + ": " + why);
  const double worst = error(c, p);
  expect(worst < 1e-5, c.name + ": off by " + std::to_string(worst));
  if (c.counted != nullptr) expect(c.counted->load() == before + 1, c.name + ": took another path");
}

void declines(const char* name, const std::function<void(Problem&)>& spoil) {
  Problem p = make({});
  connect(&p);
  spoil(p);
  AttentionOp op;
  std::string why;
  expect(!read_op(&p.out.t, &op, &why) && !why.empty(), std::string(name) + " was accepted");
}

/** Sizes that no model has: declined or computed, no matter which, but neither an abort nor a division by nothing. */
void survives(Engine& engine, const char* name, const std::function<void(Case&)>& change) {
  Case c;
  change(c);
  Problem p = make(c);
  connect(&p);
  AttentionOp op;
  std::string why;
  if (!read_op(&p.out.t, &op, &why) || !host_supports(engine, op, &why)) {
    expect(!why.empty(), std::string(name) + " was declined without a reason");
    return;
  }
  host_worth(op, 0);
  std::unique_ptr<Attention> attention(host_attention(engine));
  expect(attention->compute(op, &why) == Outcome::done || !why.empty(), std::string(name) + " failed without a reason");
}

void worth() {
  const auto of = [](int64_t queries, int64_t keys, int threads) {
    AttentionOp op = {};
    op.batches = 1, op.queries = queries, op.keys = keys, op.heads = 32, op.kv_heads = 8;
    op.head_dim = op.value_dim = 128;
    return host_worth(op, threads);
  };
  expect(of(1, 1, 1), "one thread: everything is worth it");
  for (int threads : {0, 2, 64}) {
    const std::string with = " with " + std::to_string(threads) + " threads";
    expect(!of(1, 1024, threads), "a token over 1,024 keys was taken" + with);
    expect(!of(2, 1024, threads), "two tokens over 1,024 keys were taken" + with);
    expect(!of(1, 12207, threads), "a token over 12,207 keys was taken" + with);
    expect(of(1, 12208, threads), "a token over 12,208 keys was left" + with);
    expect(!of(64, 1024, threads), "64 tokens over 1,024 keys were taken" + with);
    expect(!of(512, 238, threads), "512 tokens over 238 keys were taken" + with);
    expect(of(512, 239, threads), "512 tokens over 239 keys were left" + with);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) setenv("TESSERA_BACKEND_PATH", arguments[1], 1);
  stand_ins();
  std::string why;
  Engine* engine = Engine::open("cpu", &why);
  if (engine == nullptr) {
    std::printf("%s\n", why.c_str());
    return 77;
  }
  each_case([&](const Case& c) { run(*engine, c); });

  declines("an unknown parameter", [](Problem& p) { p.out.t.op_params[7] = 1; });
  declines("a sixth operand", [](Problem& p) { p.out.t.src[6] = &p.q.t; });
  declines("no values", [](Problem& p) { p.out.t.src[2] = nullptr; });
  declines("an unknown type", [](Problem& p) { p.k.t.type = GGML_TYPE_I32; });
  declines("queries of f16", [](Problem& p) { p.q.t.type = GGML_TYPE_F16; });
  declines("rows that aren't contiguous", [](Problem& p) { p.k.t.nb[0] = 4; });
  declines("a stride of half elements", [](Problem& p) { p.k.t.nb[1] += 1; });
  declines("another number of values", [](Problem& p) { p.v.t.ne[1]--; });
  declines("streams of keys that don't fit", [](Problem& p) { p.k.t.ne[3] = 2; });
  declines("a result of another shape", [](Problem& p) { std::swap(p.out.t.ne[1], p.out.t.ne[2]); });
  declines("ALiBi without a mask", [](Problem& p) { p.out.t.op_params[1] = 0x41000000; });
  declines("a mask of f32", [](Problem& p) { p.out.t.src[3] = &p.q.t; });
  declines("sinks of another number", [](Problem& p) { p.out.t.src[4] = &p.q.t; });
  survives(*engine, "no dims", [](Case& x) { x.dim = 0; });
  survives(*engine, "no dims of values", [](Case& x) { x.value_dim = 0; });
  survives(*engine, "no heads", [](Case& x) { x.heads = 0; });
  survives(*engine, "no batches", [](Case& x) { x.batches = 0; });
  survives(*engine, "dims beyond the engine's", [](Case& x) { x.dim = x.value_dim = 4096; });
  survives(*engine, "a scale that is no number", [](Case& x) { x.softcap = NAN; });
  worth();
  // Last, as it forgets the stand-ins: a process that has no ggml.
  why.clear();
  expect(!find_functions(reinterpret_cast<void*>(&worth), &why) &&
             why.find("doesn't export ggml_op_name, ") != std::string::npos,
         "a process without ggml: " + why);
  std::printf("::tessera {\"passed\":%d,\"failed\":%d,\"skipped\":0}\n", passed, failed);
  return failed > 0;
}
