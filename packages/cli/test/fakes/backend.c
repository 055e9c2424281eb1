/*
 * A back end with nothing behind it, that answers the probe as CUDA_FAKE says, "STATE|DEVICES|REASON|FIX": STATE is a
 * number of tsr_probe_state, or "crash", "exit", "hang", "fail". Its device is in
 * the state that CUDA_FAKE_DEVICE gives likewise. (The names are such that a probe is not taken for one of another order.)
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <stddef.h>

#include "tessera/tessera.h"

#ifdef NEEDS_GLIBC /* a symbol of a C library that is newer than any */
extern int tessera_of_the_future(void);
int tessera_ask(void) { return tessera_of_the_future(); }
#endif

static tsr_status nothing(void) { return TSR_UNSUPPORTED; }
static const char* last_error(const tsr_context* context) { return (void)context, "a fake does nothing"; }

static void field(const char* from, int index, char* to, size_t size) {
  for (; index > 0 && (from = strchr(from, '|')) != NULL; --index) ++from;
  if (from) snprintf(to, size, "%.*s", (int)strcspn(from, "|"), from);
}

static tsr_status probe(tsr_probe_result* result) {
  const char* order = getenv("CUDA_FAKE");
  if (!order) order = "0|1||";
  if (!strncmp(order, "crash", 5)) raise(SIGSEGV);
  if (!strncmp(order, "exit", 4)) _exit(9);
  if (!strncmp(order, "hang", 4)) sleep(60);
  if (!strncmp(order, "fail", 4)) return TSR_INTERNAL;
  char devices[16] = "";
  result->state = atoi(order);
  field(order, 1, devices, sizeof devices);
  result->device_count = atoi(devices);
  field(order, 2, result->reason, sizeof result->reason);
  field(order, 3, result->fix, sizeof result->fix);
  return TSR_OK;
}

static tsr_status device_info(int32_t device, tsr_device_info* info) {
  info->index = device;
  strcpy(info->name, "Fake GPU");
  strcpy(info->arch, "sm_103");
  const char* order = getenv("CUDA_FAKE_DEVICE");
  if (!order) return TSR_OK;
  info->state = atoi(order);
  field(order, 2, info->reason, sizeof info->reason);
  field(order, 3, info->fix, sizeof info->fix);
  return TSR_OK;
}

#ifndef NO_ENTRY
TSR_EXPORT const tsr_backend* tsr_backend_entry(uint32_t abi_version) {
  static tsr_backend table;
  void (**slots)(void) = (void (**)(void))&table.probe;
  const size_t count = (sizeof table - offsetof(tsr_backend, probe)) / sizeof *slots;
  for (size_t i = 0; i < count; ++i) slots[i] = (void (*)(void))nothing;
#ifdef ABI
  table.abi_version = ABI;
#else
  table.abi_version = TSR_ABI_VERSION;
#endif
  if (abi_version != table.abi_version) return NULL;
  table.struct_size = sizeof table;
  table.name = "cuda";
  table.version = "9.9.9";
  table.probe = probe;
  table.device_info = device_info;
  table.last_error = last_error;
  return &table;
}
#endif
