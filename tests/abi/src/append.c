/* Append against the same thing done in plain C. */
#include "abi.h"

static const tsr_backend* backend;
static tsr_context* context;

enum {
  B = 2,
  S = 3,
  HKV = 2,
  HQ = 4,
  D = 8,
  DV = 4,
  CAPACITY = 10,
  PAGE = 4,
  PAGES = 7,
  PER_SEQUENCE = 3
};

static float k[B * S * HKV * D], v[B * S * HKV * DV], q[B * S * HQ * D], q_out[B * S * HQ * D];
static float cache_k[PAGES * PAGE * HKV * D], cache_v[PAGES * PAGE * HKV * DV]; /* big enough for [B,CAPACITY], too */
static int32_t lengths[B], new_lens[B], starts[B + 1], positions[B * S], page_table[B * PER_SEQUENCE];
static tsr_tensor tk, tv, tq, tq_out, tck, tcv, tlengths, tnew, tstarts, tpositions, tpages;
static tsr_rope_desc rope;
static tsr_append_desc a;

static void reset(void) {
  uint32_t seed = 11;
  for (int i = 0; i < B * S * HKV * D; ++i) k[i] = noise(&seed);
  for (int i = 0; i < B * S * HKV * DV; ++i) v[i] = noise(&seed);
  for (int i = 0; i < B * S * HQ * D; ++i) q[i] = noise(&seed);
  memset(q_out, 0, sizeof q_out);
  for (int i = 0; i < PAGES * PAGE * HKV * D; ++i) cache_k[i] = 99;
  for (int i = 0; i < PAGES * PAGE * HKV * DV; ++i) cache_v[i] = 99;
  lengths[0] = 4, lengths[1] = 0;
  new_lens[0] = 2, new_lens[1] = 3;
  starts[0] = 0, starts[1] = 4, starts[2] = 6;
  for (int i = 0; i < B * S; ++i) positions[i] = 100 + 7 * i;
  const int32_t pages[] = {5, 2, 6, 0, 3, 1};
  memcpy(page_table, pages, sizeof page_table);
  tk = tensor(TSR_F32, k, B, S, HKV, D), tv = tensor(TSR_F32, v, B, S, HKV, DV);
  tq = tensor(TSR_F32, q, B, S, HQ, D), tq_out = tensor(TSR_F32, q_out, B, S, HQ, D);
  tck = tensor(TSR_F32, cache_k, B, CAPACITY, HKV, D), tcv = tensor(TSR_F32, cache_v, B, CAPACITY, HKV, DV);
  tlengths = tensor(TSR_I32, lengths, B, -1, -1, -1), tnew = tensor(TSR_I32, new_lens, B, -1, -1, -1);
  tstarts = tensor(TSR_I32, starts, B + 1, -1, -1, -1), tpositions = tensor(TSR_I32, positions, B, S, -1, -1);
  tpages = tensor(TSR_I32, page_table, B, PER_SEQUENCE, -1, -1);
  rope = (tsr_rope_desc){.struct_size = sizeof rope, .pairing = TSR_ROPE_HALF, .theta = 10000};
  a = (tsr_append_desc){
      .struct_size = sizeof a, .k = &tk, .v = &tv, .cache_k = &tck, .cache_v = &tcv, .lengths = &tlengths};
}

/* Element d of a row turned by `position`. */
static double turned(const float* row, int d, int dims, int pairing, double position, double theta) {
  if (d >= dims) return row[d];
  const int half = pairing == TSR_ROPE_HALF;
  const int pair = half ? d % (dims / 2) : d / 2, second = half ? d >= dims / 2 : d % 2;
  const double angle = position * pow(theta, -2.0 * pair / dims);
  const double x = row[half ? pair : 2 * pair], y = row[half ? pair + dims / 2 : 2 * pair + 1];
  return second ? x * sin(angle) + y * cos(angle) : x * cos(angle) - y * sin(angle);
}

/* The cache has each new token where it belongs and 99 everywhere else. `packed` rows, `paged` slots. */
static void expect_appended(int line, const int32_t* before, const int32_t* added, int packed, int paged, int dims,
                            int pairing) {
  int wrong = 0, touched = 0;
  static unsigned char seen[PAGES * PAGE];
  memset(seen, 0, sizeof seen);
  for (int b = 0; b < B; ++b)
    for (int n = 0; n < added[b]; ++n) {
      const int row = packed ? starts[b] + n : b * S + n, slot = before[b] + n;
      const int at = paged ? page_table[b * PER_SEQUENCE + slot / PAGE] * PAGE + slot % PAGE : b * CAPACITY + slot;
      const double position = a.rope && a.rope->positions ? positions[row] : slot;
      seen[at] = 1;
      for (int h = 0; h < HKV; ++h) {
        for (int d = 0; d < D; ++d) {
          const double expected = turned(k + (row * HKV + h) * D, d, dims, pairing, position, rope.theta);
          wrong += !(fabs(cache_k[(at * HKV + h) * D + d] - expected) < 1e-6);
        }
        wrong += memcmp(cache_v + (at * HKV + h) * DV, v + (row * HKV + h) * DV, DV * sizeof(float)) != 0;
      }
      for (int h = 0; a.q && h < HQ; ++h)
        for (int d = 0; d < D; ++d) {
          const double expected = turned(q + (row * HQ + h) * D, d, dims, pairing, position, rope.theta);
          wrong += !(fabs(q_out[(row * HQ + h) * D + d] - expected) < 1e-6);
        }
    }
  for (int at = 0; at < PAGES * PAGE; ++at) {
    if (seen[at]) continue;
    for (int i = 0; i < HKV * D; ++i) touched += cache_k[at * HKV * D + i] != 99;
    for (int i = 0; i < HKV * DV; ++i) touched += cache_v[at * HKV * DV + i] != 99;
  }
  CHECK(wrong == 0, "line %d: %d elements are wrong", line, wrong);
  CHECK(touched == 0, "line %d: %d elements of other slots were written", line, touched);
}

static void append(int line) {
  CHECK(backend->kv_append(context, NULL, &a) == TSR_OK, "line %d: %s", line, backend->last_error(context));
}

static void appends(void) {
  const int32_t before[B] = {4, 0}, all[B] = {S, S}, ragged[B] = {2, 3}, packed[B] = {4, 2};
  reset();
  append(__LINE__);
  expect_appended(__LINE__, before, all, 0, 0, 0, TSR_ROPE_HALF);
  CHECK(lengths[0] == 4 && lengths[1] == 0, "moved, though not asked to");

  for (int pairing = TSR_ROPE_HALF; pairing <= TSR_ROPE_INTERLEAVED; ++pairing) {
    reset();
    a.rope = &rope, a.q = &tq, a.q_out = &tq_out, a.flags = TSR_APPEND_ADVANCE;
    rope.pairing = pairing;
    append(__LINE__);
    expect_appended(__LINE__, before, all, 0, 0, D, pairing);
    CHECK(lengths[0] == 4 + S && lengths[1] == S, "lengths are %d and %d", lengths[0], lengths[1]);

    reset(); /* some dimensions, given positions, ragged, paged */
    a.rope = &rope, a.q = &tq, a.q_out = &tq_out, a.new_lens = &tnew, a.flags = TSR_APPEND_ADVANCE;
    rope.pairing = pairing, rope.dims = 6, rope.positions = &tpositions;
    a.page_table = &tpages;
    tck = tensor(TSR_F32, cache_k, PAGES, PAGE, HKV, D), tcv = tensor(TSR_F32, cache_v, PAGES, PAGE, HKV, DV);
    append(__LINE__);
    expect_appended(__LINE__, before, ragged, 0, 1, 6, pairing);
    CHECK(lengths[0] == 6 && lengths[1] == 3, "lengths are %d and %d", lengths[0], lengths[1]);
  }

  reset();
  tk = tensor(TSR_F32, k, B * S, HKV, D, -1), tv = tensor(TSR_F32, v, B * S, HKV, DV, -1);
  a.cu_seqlens = &tstarts, a.rope = &rope, a.flags = TSR_APPEND_ADVANCE;
  append(__LINE__);
  expect_appended(__LINE__, before, packed, 1, 0, D, TSR_ROPE_HALF);
  CHECK(lengths[0] == 8 && lengths[1] == 2, "lengths are %d and %d", lengths[0], lengths[1]);

  reset(); /* q in place gives what q_out gives */
  a.rope = &rope, a.q = &tq, a.q_out = &tq_out;
  append(__LINE__);
  a.q_out = &tq;
  append(__LINE__);
  CHECK(memcmp(q, q_out, sizeof q) == 0, "in place gives something else");
}

#define BAD(word, other)                                                                                   \
  do {                                                                                                     \
    float old = cache_k[0];                                                                                \
    CHECK(backend->kv_append(context, NULL, &a) == TSR_INVALID_ARGUMENT, "line %d", __LINE__);             \
    CHECK(strstr(backend->last_error(context), word) && strstr(backend->last_error(context), other), "%s", \
          backend->last_error(context));                                                                   \
    CHECK(old == cache_k[0] && cache_k[4 * HKV * D] == 99, "written in spite of it");                      \
    reset();                                                                                               \
  } while (0)

/* What only a back end that reads lengths and pages can find. */
static void bad_contents(void) {
  lengths[0] = 8;
  BAD("lengths: [0] is 8 and 3 new tokens make 11", "0 to 10");
  lengths[1] = -1;
  BAD("lengths: [1] is -1", "0 to 10");
  a.new_lens = &tnew, new_lens[1] = 4;
  BAD("new_lens: [1] is 4", "0 to 3");
  a.page_table = &tpages, page_table[1] = 7;
  tck = tensor(TSR_F32, cache_k, PAGES, PAGE, HKV, D), tcv = tensor(TSR_F32, cache_v, PAGES, PAGE, HKV, DV);
  BAD("page_table: [0,1] is 7", "0 to 6");
}

static void bad_appends(void) {
  reset();
  if (host_memory)
    bad_contents();
  else
    skip_checks(4, "contents of index tensors: not checked where the host can't read them");
  a.new_lens = &tnew, a.cu_seqlens = &tstarts;
  tk = tensor(TSR_F32, k, B * S, HKV, D, -1), tv = tensor(TSR_F32, v, B * S, HKV, DV, -1);
  BAD("new_lens", "cu_seqlens");
  a.q = &tq;
  BAD("q_out", "NULL");
  tck.shape[3] = 4;
  BAD("cache_k: shape[3] is 4", "must be 8");
  tcv.dtype = TSR_Q8_0;
  BAD("cache_v: shape[3] is 4", "multiple of 32");
  a.rope = &rope, rope.theta = 0;
  BAD("theta is 0", "> 0");
  a.rope = &rope, rope.pairing = 3;
  BAD("pairing is 3", "interleaved");
  a.rope = &rope, rope.dims = 7;
  BAD("dims is 7", "even");
  a.rope = &rope, rope.dims = 10;
  BAD("dims is 10", "at most 8");
  a.lengths = NULL;
  BAD("lengths: is NULL", "[B]");
}

int main(int argc, char** argv) {
  backend = open_backend(argc, argv);
  context = open_context(backend, 2);
  appends();
  bad_appends();
  backend->context_destroy(context);
  return finish();
}
