/* How far a tensor's memory goes. C and C++. */
#ifndef TESSERA_TESTS_REACH_H
#define TESSERA_TESTS_REACH_H

#include "tessera/tessera.h"

/* Bytes of so many elements; of whole blocks where the type has them. */
static inline int64_t bytes_of(tsr_dtype dtype, int64_t elements) {
  switch (dtype) {
    case TSR_F32:
    case TSR_I32:
      return elements * 4;
    case TSR_F16:
    case TSR_BF16:
      return elements * 2;
    case TSR_Q8_0:
      return (elements + 31) / 32 * 34;
    case TSR_Q4_0:
      return (elements + 31) / 32 * 18;
    default:
      return elements;
  }
}

/* Bytes that a view reaches; -1 if it makes no sense, or goes beyond `most` elements: what to do then is the back end's to say. */
static inline int64_t reach_of(const tsr_tensor* t, int64_t most) {
  int64_t last = 0;
  if (t->rank < 1 || t->rank > TSR_MAX_RANK) return -1;
  for (int d = 0; d < t->rank; ++d) {
    if (t->shape[d] == 0) return 0;
  }
  for (int d = 0; d < t->rank; ++d) {
    int64_t step;
    if (t->shape[d] < 0 || t->stride[d] < 0) return -1;
    if (t->shape[d] > 1 && (__builtin_mul_overflow(t->shape[d] - 1, t->stride[d], &step) ||
                            __builtin_add_overflow(last, step, &last) || last > most))
      return -1;
  }
  return bytes_of(t->dtype, last + 1);
}

#endif
