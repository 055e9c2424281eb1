// NVIDIA's driver, opened at run time: the library loads, and says why it can't run, on a machine without one. Only what
// has to work before, or beside, the CUDA runtime goes through here: the probe, and whose context is current.
#pragma once

#include <cuda.h>

#include <string>

#include "tessera/common/problem.h"

namespace tsr::cuda::host {

struct Driver {
  /// Empty if libcuda.so.1 was opened and has all that is needed; else the loader's words.
  std::string missing;
  /// The file, if one was opened.
  std::string file;

  CUresult (*init)(unsigned flags) = nullptr;
  CUresult (*version)(int* version) = nullptr;
  CUresult (*error_name)(CUresult error, const char** name) = nullptr;
  CUresult (*error_text)(CUresult error, const char** text) = nullptr;
  CUresult (*device_count)(int* count) = nullptr;
  CUresult (*device)(CUdevice* device, int index) = nullptr;
  CUresult (*device_name)(char* name, int length, CUdevice device) = nullptr;
  CUresult (*device_uuid)(CUuuid* uuid, CUdevice device) = nullptr;
  CUresult (*device_memory)(size_t* bytes, CUdevice device) = nullptr;
  CUresult (*device_attribute)(int* value, CUdevice_attribute attribute, CUdevice device) = nullptr;
  CUresult (*primary_retain)(CUcontext* context, CUdevice device) = nullptr;
  CUresult (*push_current)(CUcontext context) = nullptr;
  CUresult (*pop_current)(CUcontext* context) = nullptr;

  bool loaded() const { return missing.empty(); }
  /// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
  std::string describe(CUresult error) const;
};

/// Opened at the first call, never closed.
const Driver& driver();

}  // namespace tsr::cuda::host
