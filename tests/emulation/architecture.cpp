// The kernels of one architecture, on the emulator. Compiled once for each, with the architecture's macro and
// -DTSR_ARCHITECTURE=gfx942 and so on; `hip` is then a namespace of that name, so that they can be linked together. With TSR_ROWS
// it is only the attention kernels of one row (1 plain, 2 matrix, 3 decode, 4 pipeline), and that which cases that name no kernel
// take.
#include "architecture.h"
#include "builtins.h"
// The kernels as they are.
#include "../../kernels-hip/kernels.hip"

#if defined(TSR_ROWS)
#define TSR_ROW(number) (TSR_ROWS == (number))
#else
#define TSR_ROW(number) 1
#endif
#define TSR_PASTE(a, b) a##b
#define TSR_NAME(prefix, architecture) TSR_PASTE(prefix, architecture)
#define TSR_STRING(x) #x
#define TSR_TEXT(x) TSR_STRING(x)

namespace {

template <auto kKernel, class Arguments>
void call(const void* arguments) {
  kKernel(*static_cast<const Arguments*>(arguments));
}

#define TSR_ENTRY(name, Arguments) {#name, &call<&::name, tsr::hip::Arguments>}

const tsr::emulation::Kernel kKernels[] = {
    TSR_ENTRY(attention_plain_64_16, AttentionArguments),
#if TSR_ROW(1)
    TSR_ENTRY(attention_plain_64_64, AttentionArguments),
    TSR_ENTRY(attention_plain_128_16, AttentionArguments),
    TSR_ENTRY(attention_plain_128_64, AttentionArguments),
    TSR_ENTRY(attention_plain_256_16, AttentionArguments),
#endif
#if TSR_ROW(2) && defined(TSR_MATRIX)
    TSR_ENTRY(attention_matrix_bf16_64, AttentionArguments),
    TSR_ENTRY(attention_matrix_bf16_128, AttentionArguments),
#if !defined(__gfx90a__)
    TSR_ENTRY(attention_matrix_f16_64, AttentionArguments),
    TSR_ENTRY(attention_matrix_f16_128, AttentionArguments),
#endif
#if !defined(TSR_RDNA3)
    TSR_ENTRY(attention_matrix_bf16_128_options, AttentionArguments),
#if !defined(__gfx90a__)
    TSR_ENTRY(attention_matrix_f16_128_options, AttentionArguments),
#endif
#endif
#if defined(TSR_CDNA)
    TSR_ENTRY(attention_matrix_bf16_256, AttentionArguments),
    TSR_ENTRY(attention_matrix_bf16_256_options, AttentionArguments),
#if !defined(__gfx90a__)
    TSR_ENTRY(attention_matrix_f16_256, AttentionArguments),
    TSR_ENTRY(attention_matrix_f16_256_options, AttentionArguments),
#endif
#endif
#endif
#if TSR_ROW(3) && defined(TSR_MATRIX)
    TSR_ENTRY(attention_decode_bf16_64, AttentionArguments),
    TSR_ENTRY(attention_decode_bf16_128, AttentionArguments),
    TSR_ENTRY(attention_decode_bf16_64_blocks, AttentionArguments),
#if !defined(__gfx90a__)
    TSR_ENTRY(attention_decode_f16_64, AttentionArguments),
    TSR_ENTRY(attention_decode_f16_128, AttentionArguments),
    TSR_ENTRY(attention_decode_f16_64_blocks, AttentionArguments),
#endif
#if !defined(TSR_RDNA3)
    TSR_ENTRY(attention_decode_bf16_128_blocks, AttentionArguments),
#if !defined(__gfx90a__)
    TSR_ENTRY(attention_decode_f16_128_blocks, AttentionArguments),
#endif
#endif
#if defined(TSR_CDNA)
    TSR_ENTRY(attention_decode_bf16_256, AttentionArguments),
    TSR_ENTRY(attention_decode_bf16_256_blocks, AttentionArguments),
#if !defined(__gfx90a__)
    TSR_ENTRY(attention_decode_f16_256, AttentionArguments),
    TSR_ENTRY(attention_decode_f16_256_blocks, AttentionArguments),
#endif
#endif
#endif
#if TSR_ROW(4) && defined(TSR_CDNA)
    TSR_ENTRY(attention_pipeline_bf16_64, AttentionArguments),
    TSR_ENTRY(attention_pipeline_bf16_64_paged, AttentionArguments),
    TSR_ENTRY(attention_pipeline_bf16_128, AttentionArguments),
    TSR_ENTRY(attention_pipeline_bf16_128_paged, AttentionArguments),
#if !defined(__gfx90a__)
    TSR_ENTRY(attention_pipeline_f16_64, AttentionArguments),
    TSR_ENTRY(attention_pipeline_f16_64_paged, AttentionArguments),
    TSR_ENTRY(attention_pipeline_f16_128, AttentionArguments),
    TSR_ENTRY(attention_pipeline_f16_128_paged, AttentionArguments),
#endif
#endif
    TSR_ENTRY(merge_splits, AttentionArguments),
    TSR_ENTRY(append, AppendArguments),
    TSR_ENTRY(advance, AppendArguments),
    TSR_ENTRY(merge, Merge),
};

}  // namespace

extern const tsr::emulation::Architecture TSR_NAME(kArchitecture_, TSR_ARCHITECTURE);
const tsr::emulation::Architecture TSR_NAME(kArchitecture_, TSR_ARCHITECTURE) = {
    TSR_TEXT(TSR_ARCHITECTURE), tsr::hip::kWave, kKernels, sizeof kKernels / sizeof *kKernels};
