/* The least that a C program needs: open a back end, run a causal attention, compare with two loops in C. */
#include "abi.h"

static int takes(const tsr_kernel_info* kernel, int64_t dim) {
  return kernel->usable && (kernel->q_dtypes & kernel->kv_dtypes & 1u << TSR_F32) && dim <= kernel->max_head_dim &&
         dim % kernel->head_dim_step == 0;
}

static int anyone_takes(const tsr_backend* backend, tsr_context* context, int64_t dim) {
  for (int32_t i = 0; i < backend->kernel_count(context); ++i) {
    tsr_kernel_info kernel = {.struct_size = sizeof kernel};
    if (backend->kernel_info(context, i, &kernel) == TSR_OK && takes(&kernel, dim)) return 1;
  }
  return 0;
}

int main(int argc, char** argv) {
  const tsr_backend* backend = open_backend(argc, argv);
  CHECK(backend->struct_size >= sizeof *backend, "struct_size is %u", backend->struct_size);
  CHECK(backend->abi_version == TSR_ABI_VERSION, "abi_version is %u", backend->abi_version);

  tsr_probe_result probe = {.struct_size = sizeof probe};
  CHECK(backend->probe(&probe) == TSR_OK && probe.state == TSR_PROBE_USABLE, "%s", probe.reason);
  tsr_device_info device = {.struct_size = sizeof device};
  CHECK(backend->device_info(0, &device) == TSR_OK, "%s", backend->last_error(NULL));
  printf("%s %s: %s, %s, %d units, %.1f GB\n", backend->name, backend->version, device.name, device.arch,
         device.compute_units, (double)device.memory_bytes / 1e9);
  CHECK(device.name[0] && device.arch[0] && device.compute_units > 0 && device.memory_bytes > 0,
        "an empty description");
  CHECK(backend->device_info(1000, &device) == TSR_DEVICE_UNAVAILABLE, "there are so many?");
  CHECK(strstr(backend->last_error(NULL), "device: is 1000") != NULL, "%s", backend->last_error(NULL));

  tsr_context* context = open_context(backend, 0);
  const problem problems[] = {
      {1, 4, 4, 2, 1, 8, 1},    {2, 37, 65, 6, 2, 64, 1}, {1, 1, 300, 7, 1, 128, 1}, {1, 130, 257, 4, 4, 40, 0},
      {1, 5, 2, 12, 4, 16, 1},  {1, 4, 0, 2, 2, 8, 0},    {0, 4, 4, 2, 1, 8, 1},     {2, 0, 4, 2, 1, 8, 0},
      {3, 2, 5, 28, 4, 128, 1}, {1, 3, 9, 2, 1, 1, 0},    {1, 2, 3, 1, 1, 512, 1},
  };
  const int32_t kernels = backend->kernel_count(context);
  CHECK(kernels > 0, "an empty catalogue");
  for (size_t n = 0; n < sizeof problems / sizeof *problems; ++n) {
    job j;
    job_init(&j, problems[n], (uint32_t)n * 10 + 1);
    float *out = noise_array(j.q_count, 1), *lse = noise_array(j.lse_count, 1);
    naive(j.p, j.q, j.k, j.v, out, lse);
    for (int32_t i = -1; i < kernels; ++i) { /* -1: the back end's choice */
      tsr_kernel_info kernel = {.struct_size = sizeof kernel, .usable = 1};
      if (i >= 0) CHECK(backend->kernel_info(context, i, &kernel) == TSR_OK, "%s", backend->last_error(context));
      j.desc.kernel = i >= 0 ? kernel.name : NULL;
      memset(j.out, 0x7f, (size_t)j.q_count * sizeof(float));
      memset(j.lse, 0x7f, (size_t)j.lse_count * sizeof(float));
      const tsr_status status = run_attention(backend, context, j.desc);
      if (!(i < 0 ? anyone_takes(backend, context, j.p.d) : takes(&kernel, j.p.d))) {
        CHECK(status == TSR_UNSUPPORTED, "case %zu: %s can't do it, but ran", n, i < 0 ? "no kernel" : kernel.name);
        continue;
      }
      CHECK(status == TSR_OK, "case %zu, %s: %s", n, kernel.name, backend->last_error(context));
      const double out_error = max_error(out, j.out, j.q_count), lse_error = max_error(lse, j.lse, j.lse_count);
      CHECK(out_error < (host_memory ? 2e-6 : 5e-6), "case %zu, %s: out is off by %g", n, kernel.name, out_error);
      CHECK(lse_error < 1e-5, "case %zu, %s: lse is off by %g", n, kernel.name, lse_error);
    }
    free(out), free(lse);
    job_free(&j);
  }
  backend->context_destroy(context);
  return finish();
}
