// The kernels of one code object: each architecture compiles this file once. kernels.cpp knows their names, grids and arguments.
#include "common/append.h"
#include "common/merge.h"
#include "kernel_arguments.h"
#include "matrix/attention.h"
#include "matrix/decode.h"
#include "matrix/pipeline.h"
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
#define TSR_MATRIX_KERNEL(name, T, dim, options)                            \
  TSR_KERNEL(256) void attention_matrix_##name(AttentionArguments p) {      \
    TSR_LDS(lds, (matrix::lds_bytes<dim, options>()));                      \
    matrix::attention<matrix::T, dim, options>(p.attention, p.tiling, lds); \
  }
TSR_MATRIX_KERNEL(bf16_64, Brain, 64, false)
TSR_MATRIX_KERNEL(bf16_128, Brain, 128, false)
#if !defined(__gfx90a__)  // its matrix instructions take subnormal fp16 for 0, which results may not show
TSR_MATRIX_KERNEL(f16_64, Half, 64, false)
TSR_MATRIX_KERNEL(f16_128, Half, 128, false)
#endif
#if !defined(TSR_RDNA3)  // which has no registers for it
TSR_MATRIX_KERNEL(bf16_128_options, Brain, 128, true)
#if !defined(__gfx90a__)
TSR_MATRIX_KERNEL(f16_128_options, Half, 128, true)
#endif
#endif
#if defined(TSR_CDNA)  // nor has RDNA4 for these
TSR_MATRIX_KERNEL(bf16_256, Brain, 256, false)
TSR_MATRIX_KERNEL(bf16_256_options, Brain, 256, true)
#if !defined(__gfx90a__)
TSR_MATRIX_KERNEL(f16_256, Half, 256, false)
TSR_MATRIX_KERNEL(f16_256_options, Half, 256, true)
#endif
#endif
#endif

#if defined(TSR_MATRIX)
#define TSR_DECODE(name, T, dim, blocks)                                               \
  TSR_KERNEL(256) void attention_decode_##name(AttentionArguments p) {                 \
    TSR_LDS(lds, (decode::lds_bytes<dim>()));                                          \
    decode::attention<matrix::T, dim, blocks>(p.attention, p.tiling, p.partials, lds); \
  }
TSR_DECODE(bf16_64, Brain, 64, false)
TSR_DECODE(bf16_128, Brain, 128, false)
TSR_DECODE(bf16_64_blocks, Brain, 64, true)
#if !defined(__gfx90a__)
TSR_DECODE(f16_64, Half, 64, false)
TSR_DECODE(f16_128, Half, 128, false)
TSR_DECODE(f16_64_blocks, Half, 64, true)
#endif
#if !defined(TSR_RDNA3)  // which has no registers for it
TSR_DECODE(bf16_128_blocks, Brain, 128, true)
#if !defined(__gfx90a__)
TSR_DECODE(f16_128_blocks, Half, 128, true)
#endif
#endif
#if defined(TSR_CDNA)
TSR_DECODE(bf16_256, Brain, 256, false)
TSR_DECODE(bf16_256_blocks, Brain, 256, true)
#if !defined(__gfx90a__)
TSR_DECODE(f16_256, Half, 256, false)
TSR_DECODE(f16_256_blocks, Half, 256, true)
#endif
#endif
#endif

#if defined(TSR_CDNA)
#define TSR_PIPELINE(name, T, dim)                                                     \
  TSR_KERNEL_OF(512, 2) void attention_pipeline_##name(AttentionArguments p) {         \
    TSR_LDS(lds, (pipeline::lds_bytes<dim>()));                                        \
    pipeline::attention<wide::T, dim, false>(p.attention, p.tiling, p.chiplets, lds);  \
  }                                                                                    \
  TSR_KERNEL_OF(512, 2) void attention_pipeline_##name##_paged(AttentionArguments p) { \
    TSR_LDS(lds, (pipeline::lds_bytes<dim>()));                                        \
    pipeline::attention<wide::T, dim, true>(p.attention, p.tiling, p.chiplets, lds);   \
  }
TSR_PIPELINE(bf16_64, Brain, 64)
TSR_PIPELINE(bf16_128, Brain, 128)
#if !defined(__gfx90a__)
TSR_PIPELINE(f16_64, Half, 64)
TSR_PIPELINE(f16_128, Half, 128)
#endif
#endif

TSR_KERNEL(256) void merge_splits(AttentionArguments p) { tsr::hip::merge_splits(p.attention, p.tiling, p.partials); }

TSR_KERNEL(128) void append(AppendArguments p) {
  TSR_LDS(lds, kAppendLdsBytes);
  tsr::hip::append(p, lds);
}
TSR_KERNEL(128) void advance(AppendArguments p) { tsr::hip::advance(p.append); }
TSR_KERNEL(256) void merge(Merge p) { tsr::hip::merge(p); }
