/* Promises of the contract that hold for good calls: struct sizes, workspace of any contents, memory around the outputs,
 * the answers of explain. */
#include "abi.h"

static const tsr_backend* backend;
static tsr_context* context;

/* A caller of an older contract: the struct ends early, what lies behind is not the back end's business. */
static void shorter_structs(void) {
  job j;
  job_init(&j, (problem){1, 6, 9, 4, 2, 16, 1}, 3);
  float* whole = malloc((size_t)j.q_count * sizeof(float));
  CHECK(run_attention(backend, context, j.desc) == TSR_OK, "%s", backend->last_error(context));
  memcpy(whole, j.out, (size_t)j.q_count * sizeof(float));

  /* Without the members from `kernel` on: there is no workspace in such a struct, so force nothing and ask for little. */
  tsr_attention_desc d = j.desc;
  d.kernel = "no-such-kernel";
  d.cancel = (const volatile int32_t*)1; /* would fault if it were read */
  d.struct_size = (uint32_t)offsetof(tsr_attention_desc, kernel);
  CHECK(backend->supports(context, &d) == TSR_OK, "kernel lies beyond struct_size: %s", backend->last_error(context));
  d.struct_size = (uint32_t)offsetof(tsr_attention_desc, workspace);
  CHECK(backend->supports(context, &d) == TSR_INVALID_ARGUMENT, "kernel lies within struct_size");

  /* A tensor without `bytes`. */
  j.tq.bytes = 1;
  CHECK(backend->supports(context, &j.desc) == TSR_INVALID_ARGUMENT, "bytes lies within struct_size");
  j.tq.struct_size = (uint32_t)offsetof(tsr_tensor, bytes);
  CHECK(run_attention(backend, context, j.desc) == TSR_OK, "%s", backend->last_error(context));
  CHECK(memcmp(whole, j.out, (size_t)j.q_count * sizeof(float)) == 0, "another result");

  /* Results: no byte past what the caller has room for. */
  struct {
    tsr_explanation explanation;
    unsigned char canary[64];
  } room;
  memset(&room, 0xa5, sizeof room);
  room.explanation.struct_size = (uint32_t)offsetof(tsr_explanation, notes);
  CHECK(backend->explain(context, &j.desc, &room.explanation) == TSR_OK, "%s", backend->last_error(context));
  CHECK(room.explanation.tile_q > 0, "tile_q is %d", room.explanation.tile_q);
  for (size_t i = offsetof(tsr_explanation, notes); i < sizeof room; ++i) {
    CHECK(((unsigned char*)&room)[i] == 0xa5, "byte %zu was written", i);
  }
  free(whole);
  job_free(&j);
}

/* A caller of a newer contract: zeros beyond what the back end knows are fine, anything else is a request. */
static void longer_structs(void) {
  job j;
  job_init(&j, (problem){1, 2, 3, 2, 1, 8, 0}, 4);
  struct {
    tsr_attention_desc desc;
    unsigned char more[24];
  } longer = {.desc = j.desc};
  longer.desc.struct_size = sizeof longer;
  CHECK(backend->supports(context, &longer.desc) == TSR_OK, "%s", backend->last_error(context));
  longer.more[23] = 1;
  CHECK(backend->supports(context, &longer.desc) == TSR_UNSUPPORTED, "a non-zero byte that no one knows");
  CHECK(strstr(backend->last_error(context), "later version") != NULL, "%s", backend->last_error(context));

  struct {
    tsr_tensor tensor;
    uint64_t more;
  } tensor = {.tensor = j.tq};
  tensor.tensor.struct_size = sizeof tensor;
  j.desc.q = &tensor.tensor;
  CHECK(run_attention(backend, context, j.desc) == TSR_OK, "%s", backend->last_error(context));
  tensor.more = 1;
  CHECK(backend->supports(context, &j.desc) == TSR_UNSUPPORTED, "a non-zero byte that no one knows");
  CHECK(strstr(backend->last_error(context), "q: ") != NULL, "%s", backend->last_error(context));
  job_free(&j);
}

/* Whatever the workspace holds, the bits of the result are the same; and it may not be too small, or askew. */
static void workspace(void) {
  job j;
  job_init(&j, (problem){1, 2, 700, 8, 2, 64, 1}, 5);
  j.desc.num_splits = 3;
  uint64_t bytes = 0;
  CHECK(backend->attention_workspace(context, &j.desc, &bytes) == TSR_OK && bytes > 0, "%s",
        backend->last_error(context));
  unsigned char* memory = aligned_alloc(64, (size_t)(bytes + 128) / 64 * 64);
  float* first = malloc((size_t)j.q_count * sizeof(float));
  static const int garbage[] = {0, 0xff, 0x7f, 0x55};
  for (int i = 0; i < 4; ++i) {
    memset(memory, garbage[i], (size_t)bytes);
    j.desc.workspace = memory;
    j.desc.workspace_bytes = bytes;
    CHECK(backend->attention(context, NULL, &j.desc) == TSR_OK, "%s", backend->last_error(context));
    if (i == 0) memcpy(first, j.out, (size_t)j.q_count * sizeof(float));
    CHECK(memcmp(first, j.out, (size_t)j.q_count * sizeof(float)) == 0, "garbage %#x changes the result", garbage[i]);
  }
  char needed[32], given[32];
  snprintf(needed, sizeof needed, "at least %llu", (unsigned long long)bytes);
  snprintf(given, sizeof given, "is %llu", (unsigned long long)(bytes - 1));
  j.desc.workspace_bytes = bytes - 1;
  CHECK(backend->attention(context, NULL, &j.desc) == TSR_INVALID_ARGUMENT, "one byte too few");
  const char* text = backend->last_error(context);
  CHECK(strstr(text, needed) && strstr(text, given), "%s", text);
  j.desc.workspace = NULL;
  CHECK(backend->attention(context, NULL, &j.desc) == TSR_INVALID_ARGUMENT, "no workspace");
  CHECK(strstr(backend->last_error(context), needed) != NULL, "%s", backend->last_error(context));
  j.desc.workspace = memory + 4;
  j.desc.workspace_bytes = bytes;
  CHECK(backend->attention(context, NULL, &j.desc) == TSR_INVALID_ARGUMENT, "an unaligned workspace");
  CHECK(strstr(backend->last_error(context), "64 bytes") != NULL, "%s", backend->last_error(context));
  free(memory), free(first);
  job_free(&j);
}

/* Every kernel, outputs with gaps between rows: the gaps, and what lies before and after, stay as they were. */
static void canaries(void) {
  enum {
    ROWS = 21,
    HEADS = 3,
    DIM = 24,
    PITCH = 27,
    EDGE = 64
  };
  job j;
  job_init(&j, (problem){1, ROWS, 40, HEADS, 1, DIM, 1}, 6);
  const size_t out_floats = ROWS * HEADS * PITCH + 2 * EDGE, lse_floats = HEADS * (ROWS + 5) + 2 * EDGE;
  float *out = malloc(out_floats * sizeof(float)), *lse = malloc(lse_floats * sizeof(float));
  j.tout.data = out + EDGE;
  j.tout.stride[2] = PITCH, j.tout.stride[1] = HEADS * PITCH;
  j.tlse.data = lse + EDGE;
  j.tlse.stride[1] = ROWS + 5;
  naive(j.p, j.q, j.k, j.v, j.out, NULL);
  for (int32_t i = 0; i < backend->kernel_count(context); ++i) {
    tsr_kernel_info kernel = {.struct_size = sizeof kernel};
    backend->kernel_info(context, i, &kernel);
    if (!kernel.usable || !(kernel.q_dtypes & kernel.kv_dtypes & 1u << TSR_F32)) continue;
    for (size_t n = 0; n < out_floats; ++n) out[n] = 1234.5f;
    for (size_t n = 0; n < lse_floats; ++n) lse[n] = 1234.5f;
    j.desc.kernel = kernel.name;
    CHECK(run_attention(backend, context, j.desc) == TSR_OK, "%s", backend->last_error(context));
    int wrong = 0, touched = 0;
    for (int n = 0; n < (int)out_floats; ++n) {
      const int at = n - EDGE;
      const int inside = at >= 0 && at < ROWS * HEADS * PITCH && at % PITCH < DIM;
      if (inside)
        wrong += !(fabsf(out[n] - j.out[at / PITCH * DIM + at % PITCH]) < (host_memory ? 2e-6f : 5e-6f));
      else
        touched += out[n] != 1234.5f;
    }
    for (int n = 0; n < (int)lse_floats; ++n) {
      const int at = n - EDGE;
      const int inside = at >= 0 && at < HEADS * (ROWS + 5) && at % (ROWS + 5) < ROWS;
      if (inside)
        wrong += lse[n] == 1234.5f;
      else
        touched += lse[n] != 1234.5f;
    }
    CHECK(wrong == 0, "%s: %d elements are wrong", kernel.name, wrong);
    CHECK(touched == 0, "%s: %d elements beside the outputs were written", kernel.name, touched);
  }
  free(out), free(lse);
  job_free(&j);
}

/* Tensors may begin at any byte: the bits are those of aligned ones, from every kernel that doesn't ask for more. */
static void* one_byte_on(const float* from, int64_t count) {
  char* const to = (char*)malloc((size_t)count * sizeof *from + 1) + 1;
  return memcpy(to, from, (size_t)count * sizeof *from);
}

static void any_address(void) {
  job j;
  job_init(&j, (problem){1, 21, 40, 3, 1, 40, 1}, 8);
  const size_t out_bytes = (size_t)j.q_count * sizeof(float), lse_bytes = (size_t)j.lse_count * sizeof(float);
  float* bias = noise_array(21 * 40, 9);
  tsr_tensor tbias = tensor(TSR_F32, bias, 1, 1, 21, 40);
  j.desc.bias = &tbias;
  tsr_tensor* const all[] = {&j.tq, &j.tk, &j.tv, &j.tout, &j.tlse, &tbias};
  const int64_t counts[] = {j.q_count, j.kv_count, j.kv_count, j.q_count, j.lse_count, 21 * 40};
  void *aligned[6], *moved[6];
  for (int i = 0; i < 6; ++i) aligned[i] = all[i]->data, moved[i] = one_byte_on(aligned[i], counts[i]);
  int ran = 0;
  for (int32_t n = 0; n < backend->kernel_count(context); ++n) {
    tsr_kernel_info kernel = {.struct_size = sizeof kernel};
    backend->kernel_info(context, n, &kernel);
    j.desc.kernel = kernel.name;
    for (int i = 0; i < 6; ++i) all[i]->data = moved[i];
    if (backend->supports(context, &j.desc) != TSR_OK) continue;
    ++ran;
    CHECK(run_attention(backend, context, j.desc) == TSR_OK, "%s", backend->last_error(context));
    for (int i = 0; i < 6; ++i) all[i]->data = aligned[i];
    CHECK(run_attention(backend, context, j.desc) == TSR_OK, "%s", backend->last_error(context));
    CHECK(memcmp(moved[3], j.out, out_bytes) == 0, "%s: other bits in out at an odd address", kernel.name);
    CHECK(memcmp(moved[4], j.lse, lse_bytes) == 0, "%s: other bits in lse at an odd address", kernel.name);
  }
  if (strcmp(backend->name, "cpu") == 0) CHECK(ran >= 2, "%d kernels ran", ran);
  for (int i = 0; i < 6; ++i) free((char*)moved[i] - 1);
  free(bias);
  job_free(&j);
}

/* explain names the kernel that runs, one reason for each other row, and the workspace that attention wants. */
static void explanations(void) {
  job j;
  job_init(&j, (problem){1, 4, 64, 2, 1, 16, 0}, 7);
  const int32_t kernels = backend->kernel_count(context);
  tsr_rejection rejections[32];
  memset(rejections, 0xa5, sizeof rejections);
  tsr_explanation e = {.struct_size = sizeof e, .rejections = rejections, .rejection_capacity = 1};
  CHECK(backend->explain(context, &j.desc, &e) == TSR_OK, "%s", backend->last_error(context));
  CHECK(e.kernel[0] && e.tile_q > 0 && e.tile_k > 0 && e.splits > 0 && e.threads > 0, "an empty explanation of %s",
        e.kernel);
  CHECK(e.rejection_count == (uint32_t)kernels - 1, "%u rejections of %d rows", e.rejection_count, kernels);
  CHECK(rejections[0].kernel[0] && rejections[0].reason[0], "an empty rejection");
  CHECK((unsigned char)rejections[1].kernel[0] == 0xa5, "written past rejection_capacity");
  uint64_t bytes = 0;
  CHECK(backend->attention_workspace(context, &j.desc, &bytes) == TSR_OK, "%s", backend->last_error(context));
  CHECK(bytes == e.workspace_bytes, "%llu is not %llu", (unsigned long long)bytes,
        (unsigned long long)e.workspace_bytes);

  j.desc.kernel = f32_kernel(backend, context, TSR_FAMILY_PREFILL);
  e.rejection_capacity = 32;
  CHECK(backend->explain(context, &j.desc, &e) == TSR_OK, "%s", backend->last_error(context));
  CHECK(strcmp(e.kernel, j.desc.kernel) == 0, "%s", e.kernel);
  for (uint32_t i = 0; i < e.rejection_count; ++i)
    CHECK(rejections[i].reason[0], "%s: no reason", rejections[i].kernel);
  job_free(&j);
}

int main(int argc, char** argv) {
  backend = open_backend(argc, argv);
  context = open_context(backend, 2);
  shorter_structs();
  longer_structs();
  workspace();
  canaries();
  any_address();
  explanations();
  backend->context_destroy(context);
  return finish();
}
