/* Back ends that are wrong in one way each, around a right one (REAL, a path): what `tessera conform` must find. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tessera/tessera.h"

#if defined(NO_ENTRY)
int nothing_here = 1;
#elif defined(OTHER_ABI)
TSR_EXPORT const tsr_backend* tsr_backend_entry(uint32_t abi_version) {
  (void)abi_version;
  return NULL;
}
#elif defined(DIES_AT_LOAD)
__attribute__((constructor)) static void die(void) { abort(); }
TSR_EXPORT const tsr_backend* tsr_backend_entry(uint32_t abi_version) {
  (void)abi_version;
  return NULL;
}
#else
static const tsr_backend* real;
static tsr_backend table;

#if defined(BREAKS) || defined(BREAKS_LATER)
static const char* last_error(const tsr_context* context) {
  (void)context;
  return "the device has fallen off the bus";
}
#endif

static tsr_status attention(tsr_context* context, tsr_stream* stream, const tsr_attention_desc* desc) {
#if defined(CRASHES)
  if (desc->causal) abort();
#elif defined(BREAKS)
  static int calls;
  if (++calls > 150) return TSR_DEVICE_ERROR; /* and for ever */
#elif defined(BREAKS_LATER)
  if (desc->q->shape[1] == 1) return TSR_DEVICE_ERROR; /* at the first decode */
#elif defined(PRINTS)
  printf("hello from attention\n");
  fflush(stdout);
#endif
  tsr_status status = real->attention(context, stream, desc);
#if defined(WRONG)
  if (status == TSR_OK && desc->causal && desc->out->dtype == TSR_F32 && desc->out->shape[0] > 0 &&
      desc->out->shape[1] > 0 && desc->out->shape[2] > 0)
    *(float*)desc->out->data += 0.01f;
#endif
  return status;
}

#if defined(DIES_AT_EXIT)
static void die(void) {
  fflush(NULL); /* all was said, and all of it was good */
  abort();
}
#endif

#if defined(NO_DEVICE)
static tsr_status probe(tsr_probe_result* result) {
  result->state = TSR_PROBE_DRIVER_MISSING;
  result->device_count = 0;
  snprintf(result->reason, sizeof result->reason, "the driver of the shim isn't installed");
  snprintf(result->fix, sizeof result->fix, "install the shim's driver");
  return TSR_OK;
}
#endif

TSR_EXPORT const tsr_backend* tsr_backend_entry(uint32_t abi_version) {
  void* library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
  if (!library) return NULL;
  tsr_backend_entry_fn entry = (tsr_backend_entry_fn)dlsym(library, "tsr_backend_entry");
  real = entry ? entry(abi_version) : NULL;
  if (!real) return NULL;
  table = *real;
  table.attention = attention;
#if defined(DIES_AT_EXIT)
  atexit(die);
#elif defined(CALLED_CUDA)
  table.name = "cuda";
#endif
#if defined(BREAKS) || defined(BREAKS_LATER)
  table.last_error = last_error;
#endif
#if defined(NO_DEVICE)
  table.probe = probe;
#endif
  return &table;
}
#endif
