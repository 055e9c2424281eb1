// The CPU's kernel variants: prefill and decode for each instruction set that the build has.
#pragma once

#include <vector>

#include "device.h"
#include "isa/kernels.h"
#include "tessera/common/select.h"

namespace tsr::cpu {

/// All rows, usable or not, best instruction set first. TESSERA_CPU_ISA=portable|avx2|avx512|amx|... makes all others
/// unusable (for tests, and for comparing); a set that is unknown or can't run here is an error.
Verdict make_catalogue(const Device& device, std::vector<Variant>* rows);

/// The family that suits the shape first, and in it the best instruction set.
int preference(const Problem& problem, const Variant& row);

/// What a row computes with.
struct Kernel {
  Plan plan;
  tsr_status (*compute)(const Problem&, const Plan&, std::byte*, ThreadPool&);
  const char* arithmetic;  ///< in words
};
Kernel kernel_of(const Variant& row, const Problem& problem, const Machine& machine);

}  // namespace tsr::cpu
