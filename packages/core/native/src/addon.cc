// tessera.node: loads back ends and marshals calls to them; computes nothing. src/native/addon.ts has its types.
#include <napi.h>

#include "context_object.h"
#include "errors.h"
#include "instance.h"
#include "library_object.h"
#include "load_failure.h"
#include "loader.h"

namespace tessera {

constexpr size_t kFirstSlots = 1024;  // a decode with all its tensors needs about 400

Napi::Value Instance::reserve(Napi::Env env, size_t count) {
  Napi::Float64Array array = Napi::Float64Array::New(env, count);
  scratch = Napi::Persistent(array);
  slots = array.Data();
  slotCount = count;
  return array;
}

std::shared_ptr<Port> Instance::portOf(Napi::Env env, Napi::Function settle) {
  for (const auto& port : ports) {
    if (port->settlesWith(settle)) return port;
  }
  return ports.emplace_back(Port::open(env, settle));
}

namespace {

// load(path) -> Library; errors have `state` (a ProbeState) and `code`
Napi::Value load(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  if (!info[0].IsString()) throw errorOf(env, "invalid-argument", "path: expected a string");
  try {
    const LoadedLibrary* library = &loadLibrary(info[0].As<Napi::String>().Utf8Value());
    return make(env, Instance::of(env).library, library);
  } catch (const LoadFailure& failure) {
    Napi::Error error = errorOf(env, failure.code, failure.text);
    error.Set("state", Napi::String::New(env, failure.state));
    throw error;
  }
}

// reserve(count): a larger scratch array, in place of `scratch`
Napi::Value reserve(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] {
    const uint64_t count = wholeNumber(numberOf(info[0]), "count");
    if (count > (1u << 24)) fail(TSR_INVALID_ARGUMENT, "count is too large");
    return Instance::of(info.Env()).reserve(info.Env(), static_cast<size_t>(count));
  });
}

Napi::Object init(Napi::Env env, Napi::Object exports) {
  pinAddon();
  auto* instance = new Instance;
  env.SetInstanceData<Instance>(instance);
  instance->library = Napi::Persistent(LibraryObject::define(env));
  instance->context = Napi::Persistent(ContextObject::define(env));
  instance->graph = Napi::Persistent(GraphObject::define(env));
  exports.Set("abi", Napi::Number::New(env, TSR_ABI_VERSION));
  exports.Set("scratch", instance->reserve(env, kFirstSlots));
  exports.Set("load", Napi::Function::New(env, load, "load"));
  exports.Set("reserve", Napi::Function::New(env, reserve, "reserve"));
  return exports;
}

}  // namespace
}  // namespace tessera

static Napi::Object Init(Napi::Env env, Napi::Object exports) { return tessera::init(env, exports); }

NODE_API_MODULE(tessera, Init)
