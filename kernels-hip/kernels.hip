// The kernels of one code object: each architecture compiles this file once. kernels.cpp knows their names, grids and arguments.
#include "common/append.h"
#include "common/merge.h"
#include "kernel_arguments.h"
#include "matrix/attention.h"
#include "plain/attention.h"

using namespace tsr::hip;

#define TSR_PLAIN(dim, rows)                                                  \
  TSR_KERNEL(256) void attention_plain_##dim##_##rows(AttentionArguments p) { \
    TSR_LDS(lds, (plain::lds_bytes<dim, rows>()));                            \
    plain::attention<dim, rows>(p.attention, p.tiling, p.partials, lds);      \
  }
TSR_PLAIN(64, 16)
TSR_PLAIN(64, 64)
TSR_PLAIN(128, 16)
TSR_PLAIN(128, 64)
TSR_PLAIN(256, 16)

#if defined(TSR_MATRIX)
#define TSR_MATRIX_KERNEL(type, T, dim)                                        \
  TSR_KERNEL(256) void attention_matrix_##type##_##dim(AttentionArguments p) { \
    TSR_LDS(lds, (matrix::lds_bytes<dim>()));                                  \
    matrix::attention<matrix::T, dim>(p.attention, p.tiling, lds);             \
  }
TSR_MATRIX_KERNEL(bf16, Brain, 64)
TSR_MATRIX_KERNEL(bf16, Brain, 128)
#if !defined(__gfx90a__)  // its matrix instructions take subnormal fp16 for 0, which results may not show
TSR_MATRIX_KERNEL(f16, Half, 64)
TSR_MATRIX_KERNEL(f16, Half, 128)
#endif
#if defined(TSR_CDNA)  // RDNA has no registers for it
TSR_MATRIX_KERNEL(bf16, Brain, 256)
#if !defined(__gfx90a__)
TSR_MATRIX_KERNEL(f16, Half, 256)
#endif
#endif
#endif

TSR_KERNEL(256) void merge_splits(AttentionArguments p) { tsr::hip::merge_splits(p.attention, p.tiling, p.partials); }

TSR_KERNEL(128) void append(AppendArguments p) {
  TSR_LDS(lds, kAppendLdsBytes);
  tsr::hip::append(p, lds);
}
TSR_KERNEL(128) void advance(AppendArguments p) { tsr::hip::advance(p.append); }
TSR_KERNEL(256) void merge(Merge p) { tsr::hip::merge(p); }
