// The contract's answers as JavaScript objects. Enumerations stay numbers; src/native/answers.ts names them.
#pragma once
#include <napi.h>

#include "device.h"

namespace tessera {

Napi::Object toObject(Napi::Env env, const tsr_probe_result& result);
Napi::Object toObject(Napi::Env env, const tsr_device_info& info);
/** The whole catalogue of a context. */
Napi::Array kernelsOf(Napi::Env env, Device& device);
Napi::Object explain(Napi::Env env, Device& device, const tsr_attention_desc& desc);

}  // namespace tessera
