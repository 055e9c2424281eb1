// Failures on their way to JavaScript: an Error with the `code` of a TesseraError.
#pragma once
#include <napi.h>

#include <new>

#include "failure.h"

namespace tessera {

inline const char* codeOf(tsr_status status) {
  switch (status) {
    case TSR_UNSUPPORTED:
      return "unsupported";
    case TSR_INVALID_ARGUMENT:
      return "invalid-argument";
    case TSR_OUT_OF_MEMORY:
      return "out-of-memory";
    case TSR_DEVICE_UNAVAILABLE:
      return "device-unavailable";
    case TSR_ABI_MISMATCH:
      return "abi-mismatch";
    default:
      return "device-error";
  }
}

inline Napi::Error errorOf(Napi::Env env, const char* code, const std::string& text) {
  Napi::Error error = Napi::Error::New(env, text);
  error.Set("code", Napi::String::New(env, code));
  return error;
}

/** Runs `body`; whatever C++ throws in it becomes a JavaScript error. */
template <typename Body>
auto guarded(Napi::Env env, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const Failure& failure) {
    throw errorOf(env, codeOf(failure.status), failure.text);
  } catch (const Napi::Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw errorOf(env, "out-of-memory", "out of host memory");
  } catch (const std::exception& error) {
    throw errorOf(env, "device-error", error.what());
  }
}

}  // namespace tessera
