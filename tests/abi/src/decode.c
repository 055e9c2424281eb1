/* Storage types, decode and merge against the same thing done in plain C. */
#include "abi.h"

static const tsr_backend* backend;
static tsr_context* context;

enum {
  HKV = 2,
  HQ = 4,
  D = 8
};

/* Storage types: what comes back is the value to within the type's step, and saturates or scales as it should. */
static void storage(void) {
  enum {
    N = 64
  };
  static const struct {
    tsr_dtype dtype;
    double step; /* of the largest value */
  } types[] = {{TSR_F32, 0},          {TSR_F16, 1.0 / 1024}, {TSR_BF16, 1.0 / 128}, {TSR_F8_E4M3, 1.0 / 15},
               {TSR_Q8_0, 1.0 / 200}, {TSR_Q4_0, 1.0 / 7}};
  for (size_t t = 0; t < sizeof types / sizeof *types; ++t) {
    /* Attention over one key gives back that key's value. */
    float row[N], query[N] = {0}, out[N], scale = 0.5f;
    unsigned char stored_k[N * 4], stored_v[N * 4];
    uint32_t seed = 3;
    for (int i = 0; i < N; ++i) row[i] = 4 * noise(&seed);
    int32_t length = 0;
    tsr_tensor trow = tensor(TSR_F32, row, 1, 1, 1, N), tlength = tensor(TSR_I32, &length, 1, -1, -1, -1);
    tsr_tensor sk = tensor(types[t].dtype, stored_k, 1, 1, 1, N), sv = tensor(types[t].dtype, stored_v, 1, 1, 1, N);
    tsr_tensor tquery = tensor(TSR_F32, query, 1, 1, 1, N), tout = tensor(TSR_F32, out, 1, 1, 1, N);
    tsr_tensor tscale = tensor(TSR_F32, &scale, 1, -1, -1, -1);
    tsr_append_desc append = {.struct_size = sizeof append, .flags = TSR_APPEND_ADVANCE, .k = &trow, .v = &trow};
    append.cache_k = &sk, append.cache_v = &sv, append.lengths = &tlength;
    tsr_attention_desc attend = {
        .struct_size = sizeof attend, .q = &tquery, .k = &sk, .v = &sv, .out = &tout, .seq_lens_k = &tlength};
    if (types[t].dtype == TSR_F8_E4M3) append.k_scale = append.v_scale = attend.k_scale = attend.v_scale = &tscale;
    CHECK(backend->kv_append(context, NULL, &append) == TSR_OK, "%s", backend->last_error(context));
    CHECK(run_attention(backend, context, attend) == TSR_OK, "%s", backend->last_error(context));
    const double error = max_error(row, out, N);
    CHECK(error <= 4 * types[t].step, "type %d: off by %g", types[t].dtype, error);
    CHECK(types[t].step == 0 || error > 0, "type %d: stored without rounding?", types[t].dtype);
  }
}

/* Three decode steps give what one attention over the whole gives, and bad steps leave cache and lengths alone. */
static void decodes(void) {
  enum {
    STEPS = 3,
    HELD = 4,
    ALL = HELD + STEPS
  };
  job j;
  job_init(&j, (problem){1, ALL, ALL, HQ, HKV, D, 1}, 21);
  naive(j.p, j.q, j.k, j.v, j.out, NULL);
  float *ck = calloc(ALL * HKV * D, sizeof(float)), *cv = calloc(ALL * HKV * D, sizeof(float)), out[HQ * D];
  memcpy(ck, j.k, HELD * HKV * D * sizeof(float)), memcpy(cv, j.v, HELD * HKV * D * sizeof(float));
  int32_t length = HELD;
  tsr_tensor tlength = tensor(TSR_I32, &length, 1, -1, -1, -1), tout = tensor(TSR_F32, out, 1, 1, HQ, D);
  tsr_tensor tck = tensor(TSR_F32, ck, 1, ALL, HKV, D), tcv = tensor(TSR_F32, cv, 1, ALL, HKV, D);
  for (int step = 0; step <= STEPS; ++step) {
    const int row = HELD + (step < STEPS ? step : 0);
    tsr_tensor nk = tensor(TSR_F32, j.k + row * HKV * D, 1, 1, HKV, D),
               nv = tensor(TSR_F32, j.v + row * HKV * D, 1, 1, HKV, D);
    tsr_tensor nq = tensor(TSR_F32, j.q + row * HQ * D, 1, 1, HQ, D);
    tsr_append_desc append = {.struct_size = sizeof append, .flags = TSR_APPEND_ADVANCE, .k = &nk, .v = &nv};
    append.cache_k = &tck, append.cache_v = &tcv, append.lengths = &tlength;
    tsr_attention_desc attend = {
        .struct_size = sizeof attend, .q = &nq, .k = &tck, .v = &tcv, .out = &tout, .causal = 1};
    attend.seq_lens_k = &tlength;
    tsr_decode_desc decode = {.struct_size = sizeof decode, .append = &append, .attention = &attend};
    static unsigned char workspace[1 << 22] __attribute__((aligned(64)));
    uint64_t bytes = 0;
    if (step == STEPS && !host_memory) {
      skip_checks(3, "contents of index tensors: not checked where the host can't read them");
      break;
    }
    if (step == STEPS) { /* the cache is full */
      CHECK(backend->decode_workspace(context, &decode, &bytes) == TSR_INVALID_ARGUMENT, "no room, but a workspace");
      CHECK(backend->decode(context, NULL, &decode) == TSR_INVALID_ARGUMENT, "no room");
      CHECK(strstr(backend->last_error(context), "append: lengths: [0] is 7"), "%s", backend->last_error(context));
      break;
    }
    CHECK(backend->decode_workspace(context, &decode, &bytes) == TSR_OK && bytes <= sizeof workspace, "%s",
          backend->last_error(context));
    attend.workspace = workspace, attend.workspace_bytes = bytes;
    const float untouched = ck[row * HKV * D];
    attend.softcap = -1;
    CHECK(backend->decode(context, NULL, &decode) == TSR_INVALID_ARGUMENT, "softcap -1");
    CHECK(strstr(backend->last_error(context), "attention: softcap"), "%s", backend->last_error(context));
    attend.softcap = 0, attend.workspace = NULL;
    if (bytes > 0) CHECK(backend->decode(context, NULL, &decode) == TSR_INVALID_ARGUMENT, "no workspace");
    CHECK(ck[row * HKV * D] == untouched && length == HELD + step, "a refused step wrote to the cache");
    attend.workspace = workspace;
    CHECK(backend->decode(context, NULL, &decode) == TSR_OK, "%s", backend->last_error(context));
    CHECK(length == HELD + step + 1, "length is %d", length);
    CHECK(max_error(out, j.out + row * HQ * D, HQ * D) < (host_memory ? 2e-6 : 5e-6), "step %d is off", step);
  }
  free(ck), free(cv);
  job_free(&j);
}

/* Attention over halves of the keys, merged, is attention over all; empty parts are neutral; NaNs in them don't show. */
static void merges(void) {
  job j;
  job_init(&j, (problem){2, 5, 16, HQ, HKV, D, 0}, 31);
  float *outs[3], *lses[3], *out = malloc((size_t)j.q_count * sizeof(float)),
                            *lse = malloc((size_t)j.lse_count * sizeof(float));
  tsr_tensor touts[3], tlses[3];
  const tsr_tensor *pouts[3], *plses[3];
  for (int part = 0; part < 3; ++part) {
    outs[part] = malloc((size_t)j.q_count * sizeof(float)), lses[part] = malloc((size_t)j.lse_count * sizeof(float));
    touts[part] = tensor(TSR_F32, outs[part], 2, 5, HQ, D), tlses[part] = tensor(TSR_F32, lses[part], 2, HQ, 5, -1);
    pouts[part] = &touts[part], plses[part] = &tlses[part];
    for (int i = 0; i < j.q_count; ++i) outs[part][i] = NAN; /* part 1 stays so: empty */
    for (int i = 0; i < j.lse_count; ++i) lses[part][i] = -INFINITY;
    if (part == 1) continue;
    tsr_tensor hk = j.tk, hv = j.tv;
    hk.shape[1] = hv.shape[1] = part ? 6 : 10;
    hk.data = j.k + (part ? 10 * HKV * D : 0), hv.data = j.v + (part ? 10 * HKV * D : 0);
    tsr_attention_desc d = j.desc;
    d.k = &hk, d.v = &hv, d.out = &touts[part], d.lse = &tlses[part];
    CHECK(run_attention(backend, context, d) == TSR_OK, "%s", backend->last_error(context));
  }
  naive(j.p, j.q, j.k, j.v, j.out, j.lse);
  tsr_tensor tout = tensor(TSR_F32, out, 2, 5, HQ, D), tlse = tensor(TSR_F32, lse, 2, HQ, 5, -1);
  tsr_merge_desc m = {.struct_size = sizeof m, .count = 3, .outs = pouts, .lses = plses, .out = &tout, .lse = &tlse};
  CHECK(backend->merge(context, NULL, &m) == TSR_OK, "%s", backend->last_error(context));
  CHECK(max_error(out, j.out, j.q_count) < (host_memory ? 2e-6 : 5e-6), "out is off by %g",
        max_error(out, j.out, j.q_count));
  CHECK(max_error(lse, j.lse, j.lse_count) < 1e-5, "lse is off by %g", max_error(lse, j.lse, j.lse_count));
  float* same = malloc((size_t)j.q_count * sizeof(float));
  memcpy(same, out, (size_t)j.q_count * sizeof(float));
  m.out = pouts[0], m.lse = plses[0]; /* in place */
  CHECK(backend->merge(context, NULL, &m) == TSR_OK, "%s", backend->last_error(context));
  CHECK(memcmp(same, outs[0], (size_t)j.q_count * sizeof(float)) == 0, "in place gives something else");
  m.out = &tout, m.lse = &tlse, m.count = 1, m.outs = &pouts[1], m.lses = &plses[1]; /* nothing but an empty part */
  CHECK(backend->merge(context, NULL, &m) == TSR_OK, "%s", backend->last_error(context));
  CHECK(out[0] == 0 && out[j.q_count - 1] == 0 && lse[0] == -INFINITY, "%g, %g", out[0], lse[0]);

  m.count = 0;
  CHECK(backend->merge(context, NULL, &m) == TSR_INVALID_ARGUMENT, "count 0");
  CHECK(strstr(backend->last_error(context), "count: is 0"), "%s", backend->last_error(context));
  m.count = 3, m.outs = pouts, m.lses = plses, tlses[2].shape[2] = 4;
  CHECK(backend->merge(context, NULL, &m) == TSR_INVALID_ARGUMENT, "a wrong shape");
  CHECK(strstr(backend->last_error(context), "lses[2]: shape[2] is 4, must be 5"), "%s", backend->last_error(context));
  plses[2] = NULL;
  CHECK(backend->merge(context, NULL, &m) == TSR_INVALID_ARGUMENT, "a NULL part");
  for (int part = 0; part < 3; ++part) free(outs[part]), free(lses[part]);
  free(out), free(lse), free(same);
  job_free(&j);
}

int main(int argc, char** argv) {
  backend = open_backend(argc, argv);
  context = open_context(backend, 2);
  storage();
  decodes();
  merges();
  backend->context_destroy(context);
  return finish();
}
