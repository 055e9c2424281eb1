/* Every kind of wrong input: the right status, a text that names the argument and its value, no output touched, and
 * supports, explain, attention_workspace and attention of one opinion. */
#include "abi.h"

static const tsr_backend* backend;
static tsr_context* context;

enum {
  B = 2,
  SQ = 3,
  SK = 5,
  HQ = 4,
  HKV = 2,
  D = 32
};

/* A good call that each row spoils in one place. */
static job j;
static int32_t lens_q[B] = {3, 2}, lens_k[B] = {5, 0}, starts_q[B + 1] = {0, 2, 6}, starts_k[B + 1] = {0, 4, 10};
static int32_t offsets[B] = {0, 1}, pages[B * 2] = {1, 0, 4, 9};
static float per_head[HQ] = {0}, per_kv_head[HKV] = {1, 1}, scores[B * HQ * SQ * SK];
static unsigned char visible[B * HQ * SQ * SK];
static tsr_tensor tq, tk, tv, tout, tlse, tlens_q, tlens_k, tstarts_q, tstarts_k, toffsets, tpages, theads, tkv, tbias,
    tmask;
static tsr_attention_desc d;

static void reset(void) {
  tq = j.tq, tk = j.tk, tv = j.tv, tout = j.tout, tlse = j.tlse, d = j.desc;
  tlens_q = tensor(TSR_I32, lens_q, B, -1, -1, -1);
  tlens_k = tensor(TSR_I32, lens_k, B, -1, -1, -1);
  tstarts_q = tensor(TSR_I32, starts_q, B + 1, -1, -1, -1);
  tstarts_k = tensor(TSR_I32, starts_k, B + 1, -1, -1, -1);
  toffsets = tensor(TSR_I32, offsets, B, -1, -1, -1);
  tpages = tensor(TSR_I32, pages, B, 2, -1, -1);
  theads = tensor(TSR_F32, per_head, HQ, -1, -1, -1);
  tkv = tensor(TSR_F32, per_kv_head, HKV, -1, -1, -1);
  tbias = tensor(TSR_F32, scores, B, HQ, SQ, SK);
  tmask = tensor(TSR_BOOL, visible, B, HQ, SQ, SK);
  d.q = &tq, d.k = &tk, d.v = &tv, d.out = &tout, d.lse = &tlse;
  lens_k[0] = 5, lens_k[1] = 0, lens_q[0] = 3;
  starts_q[0] = 0, starts_q[1] = 2, starts_q[2] = 6, starts_k[1] = 4;
  pages[0] = 1, pages[1] = 0;
}

static void packed_q(void) {
  tq = tensor(TSR_F32, j.q, B * SQ, HQ, D, -1);
  tout = tensor(TSR_F32, j.out, B * SQ, HQ, D, -1);
  tlse = tensor(TSR_F32, j.lse, HQ, B * SQ, -1, -1);
  d.cu_seqlens_q = &tstarts_q;
}
static void packed_k(void) {
  tk = tensor(TSR_F32, j.k, B * SK, HKV, D, -1);
  tv = tensor(TSR_F32, j.v, B * SK, HKV, D, -1);
  d.cu_seqlens_k = &tstarts_k;
}
static void paged(void) { /* 2 pages of 5 keys */
  d.page_table = &tpages;
  d.seq_lens_k = &tlens_k;
}

/* Four calls, one answer; the text has both words; outputs stay as they were. Then the good call is back. */
static void expect(int line, tsr_status status, const char* word, const char* other) {
  float *out = malloc((size_t)j.q_count * sizeof(float)), *lse = malloc((size_t)j.lse_count * sizeof(float));
  memcpy(out, j.out, (size_t)j.q_count * sizeof(float));
  memcpy(lse, j.lse, (size_t)j.lse_count * sizeof(float));
  static unsigned char workspace[1 << 22] __attribute__((aligned(64)));
  d.workspace = workspace;
  d.workspace_bytes = sizeof workspace;
  static tsr_rejection rejections[16];
  tsr_explanation explanation = {.struct_size = sizeof explanation, .rejections = rejections, .rejection_capacity = 16};
  uint64_t bytes;
  for (int call = 0; call < 4; ++call) {
    const tsr_status got = call == 0   ? backend->attention(context, NULL, &d)
                           : call == 1 ? backend->supports(context, &d)
                           : call == 2 ? backend->explain(context, &d, &explanation)
                                       : backend->attention_workspace(context, &d, &bytes);
    const char* text = backend->last_error(context);
    CHECK(got == status, "line %d, call %d: status %d, not %d: %s", line, call, got, status, got ? text : "");
    if (status == TSR_OK) continue;
    CHECK(strstr(text, word) && strstr(text, other), "line %d: \"%s\" and \"%s\" are not in: %s", line, word, other,
          text);
  }
  if (status != TSR_OK) {
    CHECK(memcmp(out, j.out, (size_t)j.q_count * sizeof(float)) == 0, "line %d: out was written", line);
    CHECK(memcmp(lse, j.lse, (size_t)j.lse_count * sizeof(float)) == 0, "line %d: lse was written", line);
  }
  free(out), free(lse);
  reset();
}
/* What only a back end that reads lengths and pages can find. */
#define BAD_CONTENT(spoil, word, other)                                                        \
  do {                                                                                         \
    if (host_memory)                                                                           \
      BAD(spoil, word, other);                                                                 \
    else                                                                                       \
      skip_checks(1, "contents of index tensors: not checked where the host can't read them"); \
  } while (0)
#define BAD(spoil, word, other) ((void)(spoil), expect(__LINE__, TSR_INVALID_ARGUMENT, word, other))
#define CANT(spoil, word, other) ((void)(spoil), expect(__LINE__, TSR_UNSUPPORTED, word, other))
#define GOOD(change) ((void)(change), expect(__LINE__, TSR_OK, "", ""))

static void tensors(void) {
  BAD(d.q = NULL, "q", "NULL");
  BAD(d.k = NULL, "k", "NULL");
  BAD(d.out = NULL, "out", "NULL");
  BAD(tq.dtype = 0, "q: dtype is none", "f32, f16 or bf16");
  BAD(tq.dtype = 77, "q: dtype is unknown (77)", "f32, f16 or bf16");
  BAD(tk.dtype = TSR_BOOL, "k: dtype is bool", "q8_0 or q4_0");
  CANT(tq.dtype = TSR_F8_E4M3, "q: dtype f8_e4m3", "f32, f16 or bf16");
  BAD(tout.dtype = TSR_I32, "out: dtype is i32", "f32, f16 or bf16");
  BAD(tlse.dtype = TSR_F16, "lse: dtype is f16", "f32");
  BAD(tq.rank = 3, "q: rank is 3", "[B,Sq,Hq,D]");
  BAD(tq.rank = -1, "q: rank is -1", "4");
  BAD(tlse.rank = 4, "lse: rank is 4", "[B,Hq,Sq]");
  BAD(tq.shape[1] = -3, "q: shape[1] is -3", ">= 0");
  BAD(tk.stride[0] = -1, "k: stride[0] is -1", ">= 0");
  BAD(tk.stride[3] = 2, "k: stride[3] is 2", "must be 1");
  BAD(tout.stride[1] = 0, "out: stride[1] is 0", "written");
  BAD((tq.bytes = 3071), "q: shape [2,3,4,32]", "3071");
  GOOD(tq.bytes = 3072);
  CANT(tq.reserved = 1, "q: reserved is 1", "0");
  BAD((tk.dtype = TSR_Q8_0, tk.stride[1] = 40), "k: stride[1] is 40", "multiple of 32");
  BAD(tq.shape[0] = 1000000000000000000, "q: shape [1000000000000000000,3,4,32]", "2^56");
  BAD((tk.shape[1] = tv.shape[1] = INT64_MAX), "k", "9223372036854775807");
  BAD(tk.stride[0] = INT64_MAX, "k: shape", "9223372036854775807");
  BAD(tk.stride[1] = INT64_C(1) << 62, "k: shape", "2^56"); /* times 4 is 2^64, which wraps to 0 */
  BAD((tk.stride[0] = tk.stride[1] = INT64_MAX / 4), "k: shape", "2^56");
  CANT((tk.shape[1] = tv.shape[1] = 1000000000000, tk.stride[1] = tv.stride[1] = 0, tk.stride[0] = tv.stride[0] = 0),
       "1000000000000", "2^39");
  GOOD((tk.stride[0] = tv.stride[0] = 0));
}

static void shapes(void) {
  BAD(tk.shape[0] = 1, "k: shape[0] is 1", "must be 2, the batch of q");
  BAD(tk.shape[3] = 16, "k: shape[3] is 16", "must be 32, the head dim of q");
  BAD(tv.shape[1] = 4, "v: shape[1] is 4", "must be 5, the keys of k");
  BAD(tv.shape[2] = 1, "v: shape[2] is 1", "must be 2, the heads of k");
  BAD((tq.shape[2] = 3, tout.shape[2] = 3), "q: shape[2] is 3", "multiple of the 2 heads of k");
  BAD((tk.shape[2] = tv.shape[2] = 0), "k: shape[2] is 0", "at least one head");
  BAD((tq.shape[3] = tk.shape[3] = 0), "q: shape[3] is 0", ">= 1");
  BAD(tout.shape[3] = 31, "out: shape[3] is 31", "must be 32, the head dim of v");
  BAD(tout.shape[1] = 2, "out: shape[1] is 2", "must be 3, the rows of q");
  BAD(tlse.shape[1] = 3, "lse: shape[1] is 3", "must be 4, the heads of q");
  CANT((tq.shape[3] = tk.shape[3] = 513, tq.stride[2] = tk.stride[2] = 0), "head dim is 513", "at most");
  CANT((tv.shape[3] = tout.shape[3] = 600, tv.stride[2] = 0, tout.stride[2] = 600), "v: head dim is 600", "at most");
  BAD((tk.dtype = TSR_Q4_0, tq.shape[3] = tk.shape[3] = 20), "k: shape[3] is 20", "multiple of 32 for q4_0");
  BAD((d.bias = &tbias, tbias.shape[3] = 4), "bias: shape[3] is 4", "must be 5, the keys of k");
  BAD((d.bias = &tbias, tbias.dtype = TSR_BOOL), "bias: dtype is bool", "f32, f16 or bf16");
  BAD((d.mask = &tmask, tmask.shape[0] = 3), "mask: shape[0] is 3", "1 or 2");
  BAD((d.mask = &tmask, tmask.shape[1] = 2), "mask: shape[1] is 2", "1 or 4");
  BAD((d.mask = &tmask, tmask.dtype = TSR_F32), "mask: dtype is f32", "bool");
  GOOD((d.mask = &tmask, tmask.shape[0] = tmask.shape[1] = 1));
  BAD((d.alibi_slopes = &theads, theads.shape[0] = 3), "alibi_slopes: shape[0] is 3", "must be 4");
  BAD((d.sinks = &theads, theads.dtype = TSR_F16), "sinks: dtype is f16", "f32");
  BAD((d.sinks = &theads, theads.data = (char*)per_head + 2), "sinks", "4 bytes");
  BAD((d.k_scale = &tkv), "k_scale: given", "k is f32");
  BAD((tv.dtype = TSR_F8_E4M3, d.v_scale = &tkv, tkv.shape[0] = 1), "v_scale: shape[0] is 1", "must be 2");
  GOOD((tv.dtype = TSR_F8_E4M3, d.v_scale = &tkv));
}

static void options(void) {
  BAD((d.present = TSR_HAS_SCALE, d.scale = NAN), "scale: is", "nan");
  BAD((d.present = TSR_HAS_SCALE, d.scale = INFINITY), "scale: is inf", "finite");
  BAD(d.scale = 0.5f, "scale: is 0.5", "TSR_HAS_SCALE");
  GOOD((d.present = TSR_HAS_SCALE, d.scale = -0.5f));
  CANT(d.present = 4, "present: is 4", "3");
  BAD(d.softcap = -1, "softcap: is -1", ">= 0");
  BAD(d.softcap = NAN, "softcap: is", "nan");
  BAD(d.softcap = INFINITY, "softcap: is inf", "finite");
  BAD(d.causal = 2, "causal: is 2", "0 or 1");
  BAD(d.align = 3, "align: is 3", "top-left");
  BAD((d.query_offset = &toffsets, d.align = TSR_ALIGN_TOP_LEFT), "query_offset", "align 2");
  BAD((d.query_offset = &toffsets, toffsets.shape[0] = 1), "query_offset: shape[0] is 1", "must be 2");
  BAD((d.present = TSR_HAS_WINDOW, d.window_left = -2), "window_left: is -2", ">= -1");
  BAD((d.present = TSR_HAS_WINDOW, d.window_right = -7), "window_right: is -7", ">= -1");
  BAD(d.window_left = 4, "window_left", "TSR_HAS_WINDOW");
  GOOD((d.present = TSR_HAS_WINDOW, d.window_left = INT64_MAX, d.window_right = INT64_MAX));
  BAD(d.num_splits = -1, "num_splits: is -1", ">= 0");
  const char *prefill = f32_kernel(backend, context, TSR_FAMILY_PREFILL),
             *decode = f32_kernel(backend, context, TSR_FAMILY_DECODE);
  BAD(d.kernel = "no-such-kernel", "no-such-kernel", prefill);
  BAD(d.kernel = "", "kernel: is \"\"", decode);
  if (strcmp(backend->name, "cpu") == 0) CANT((d.kernel = prefill, d.num_splits = 4), prefill, "num_splits is 4");
  GOOD((d.kernel = prefill, d.num_splits = 1));
  GOOD((d.kernel = decode, d.num_splits = 4));
  CANT(d.reserved = 9, "reserved: is 9", "0");
}

static void sequences(void) {
  GOOD((d.seq_lens_q = &tlens_q, d.seq_lens_k = &tlens_k));
  BAD_CONTENT((d.seq_lens_q = &tlens_q, lens_q[0] = 4), "seq_lens_q: [0] is 4", "0 to 3");
  BAD_CONTENT((d.seq_lens_k = &tlens_k, lens_k[1] = 6), "seq_lens_k: [1] is 6", "0 to 5");
  BAD_CONTENT((d.seq_lens_k = &tlens_k, lens_k[1] = -1), "seq_lens_k: [1] is -1", "0 to 5");
  BAD((d.seq_lens_k = &tlens_k, tlens_k.shape[0] = 1), "seq_lens_k: shape[0] is 1", "must be 2");
  BAD((d.seq_lens_k = &tlens_k, tlens_k.dtype = TSR_F32), "seq_lens_k: dtype is f32", "i32");
  BAD((packed_q(), d.seq_lens_q = &tlens_q), "seq_lens_q", "cu_seqlens_q");
  BAD((packed_k(), d.seq_lens_k = &tlens_k), "seq_lens_k", "cu_seqlens_k");
  GOOD(packed_q());
  GOOD((packed_q(), packed_k()));
  BAD_CONTENT((packed_q(), starts_q[0] = 1), "cu_seqlens_q: [0] is 1", "must be 0");
  BAD_CONTENT((packed_q(), starts_q[2] = 5), "cu_seqlens_q: [2] is 5", "must be 6");
  BAD_CONTENT((packed_q(), starts_q[1] = 7), "cu_seqlens_q: [2] is 6", "at least 7");
  BAD_CONTENT((packed_q(), d.max_seqlen_q = 3), "max_seqlen_q: is 3", "has 4 rows");
  BAD((packed_q(), d.max_seqlen_q = -1), "max_seqlen_q: is -1", ">= 0");
  BAD_CONTENT((packed_q(), packed_k(), d.max_seqlen_k = 5), "max_seqlen_k: is 5", "has 6 rows");
  BAD((packed_q(), tlse = j.tlse), "lse: rank is 3", "[Hq,T]");
  BAD((packed_q(), tstarts_q.shape[0] = 0), "cu_seqlens_q: shape[0] is 0", "B + 1");
  BAD((packed_k(), tstarts_k.shape[0] = 2), "cu_seqlens_k: shape[0] is 2", "must be 3");
  GOOD(paged());
  GOOD((paged(), packed_q()));
  BAD(d.page_table = &tpages, "seq_lens_k: is NULL", "page_table");
  BAD((paged(), d.seq_lens_k = NULL, d.cu_seqlens_k = &tstarts_k), "cu_seqlens_k", "page_table");
  BAD_CONTENT((paged(), pages[0] = 2), "page_table: [0,0] is 2", "0 to 1");
  BAD_CONTENT((paged(), pages[0] = -1), "page_table: [0,0] is -1", "0 to 1");
  BAD_CONTENT((paged(), lens_k[0] = 6, pages[1] = 9), "page_table: [0,1] is 9", "0 to 1");
  GOOD((paged(), pages[1] = 9)); /* past the length: never read */
  BAD_CONTENT((paged(), lens_k[0] = 11), "seq_lens_k: [0] is 11", "0 to 10");
  BAD((paged(), tpages.shape[0] = 1), "page_table: shape[0] is 1", "must be 2");
  BAD((paged(), tv.shape[0] = 1), "v: shape[0] is 1", "the pages of k");
}

static void sizes_and_nulls(void) {
  BAD(d.struct_size = 2, "attention: struct_size is 2", "sizeof");
  BAD(d.struct_size = 4000000000u, "struct_size is 4000000000", "sizeof");
  BAD(tq.struct_size = 0, "q: struct_size is 0", "sizeof");
  CHECK(backend->attention(context, NULL, NULL) == TSR_INVALID_ARGUMENT, "a NULL descriptor");
  CHECK(backend->attention(NULL, NULL, &d) == TSR_INVALID_ARGUMENT, "a NULL context");
  CHECK(strstr(backend->last_error(NULL), "context: is NULL") != NULL, "%s", backend->last_error(NULL));
  CHECK(backend->explain(context, &d, NULL) == TSR_INVALID_ARGUMENT, "a NULL result");
  CHECK(backend->attention_workspace(context, &d, NULL) == TSR_INVALID_ARGUMENT, "a NULL result");
  tsr_kernel_info info = {.struct_size = sizeof info};
  CHECK(backend->kernel_info(context, 99, &info) == TSR_INVALID_ARGUMENT, "an index out of range");
  CHECK(strstr(backend->last_error(context), "index: is 99") != NULL, "%s", backend->last_error(context));

  /* NULL data: only by shape. What needs memory refuses it, the three others answer. */
  tq.data = tk.data = tv.data = tout.data = NULL;
  CHECK(backend->supports(context, &d) == TSR_OK, "%s", backend->last_error(context));
  CHECK(backend->attention(context, NULL, &d) == TSR_INVALID_ARGUMENT, "NULL data");
  CHECK(strstr(backend->last_error(context), "q: data is NULL") != NULL, "%s", backend->last_error(context));
  reset();
  d.seq_lens_k = &tlens_k, tlens_k.data = NULL, d.alibi_slopes = &theads, theads.data = NULL;
  CHECK(backend->supports(context, &d) == TSR_OK, "%s", backend->last_error(context));
  CHECK(backend->attention(context, NULL, &d) == TSR_INVALID_ARGUMENT, "NULL data");
  reset();
}

/* A size that ends within a member, as no version's does, is refused, whatever of the struct is read. */
static void sizes_within_members(void) {
  tsr_append_desc append = {0};
  tsr_decode_desc decode = {0};
  tsr_merge_desc merge = {0};
  tsr_context_desc desc = {0};
  tsr_context* other = NULL;
  uint64_t bytes;
  for (uint32_t size = 0; size < 400; size = size % 8 == 7 ? size + 2 : size + 1) { /* 0, and no multiple of 8 */
    char said[40];
    snprintf(said, sizeof said, "struct_size is %u, must", size);
    BAD(d.struct_size = size, "attention: ", said);
    BAD(tq.struct_size = size, "q: ", said);
    BAD((d.seq_lens_k = &tlens_k, tlens_k.struct_size = size), "seq_lens_k: ", said);
    append.struct_size = decode.struct_size = merge.struct_size = desc.struct_size = size;
    const tsr_status got[] = {
        backend->kv_append(context, NULL, &append),
        backend->decode_workspace(context, &decode, &bytes),
        backend->merge(context, NULL, &merge),
    };
    for (size_t i = 0; i < sizeof got / sizeof *got; ++i)
      CHECK(got[i] == TSR_INVALID_ARGUMENT, "size %u, call %zu: status %d", size, i, got[i]);
    CHECK(strstr(backend->last_error(context), said) != NULL, "%s", backend->last_error(context));
    CHECK(backend->context_create(&desc, &other) == TSR_INVALID_ARGUMENT, "a context of size %u", size);
    CHECK(strstr(backend->last_error(NULL), said) != NULL, "%s", backend->last_error(NULL));
  }
}

int main(int argc, char** argv) {
  backend = open_backend(argc, argv);
  context = open_context(backend, 2);
  job_init(&j, (problem){B, SQ, SK, HQ, HKV, D, 0}, 5);
  memset(visible, 1, sizeof visible);
  reset();
  GOOD(0);
  tensors();
  shapes();
  options();
  sequences();
  sizes_and_nulls();
  sizes_within_members();
  GOOD(0);
  job_free(&j);
  backend->context_destroy(context);
  return finish();
}
