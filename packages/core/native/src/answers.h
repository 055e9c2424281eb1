// The contract's answers as JavaScript objects. Enumerations stay numbers; src/native/answers.ts names them.
#pragma once
#include <napi.h>

#include "device.h"

namespace tessera {

// More than any library has: what a back end that lies makes of a count must not become a loop without end.
constexpr int32_t kMostDevices = 1024, kMostKernels = 4096;

/** Fail with what the back end told and what is allowed. */
void requireCount(const tsr_backend& backend, const char* call, const char* things, int32_t count, int32_t most);
void requireSize(const tsr_backend& backend, uint32_t size, size_t ours, const char* call);

Napi::Object toObject(Napi::Env env, const tsr_probe_result& result);
Napi::Object toObject(Napi::Env env, const tsr_device_info& info);
/** The whole catalogue of a context. */
Napi::Array kernelsOf(Napi::Env env, Device& device);
Napi::Object explain(Napi::Env env, Device& device, const tsr_attention_desc& desc);

}  // namespace tessera
