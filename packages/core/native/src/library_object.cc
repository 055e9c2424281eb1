#include "library_object.h"

#include "answers.h"
#include "context_object.h"
#include "errors.h"
#include "instance.h"
#include "reader.h"
#include "session.h"

namespace tessera {
namespace {

int32_t smallNumber(const Napi::Value& value, const char* name) {
  const uint64_t number = wholeNumber(value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : -1, name);
  if (number > INT32_MAX)
    fail(TSR_INVALID_ARGUMENT, std::string(name) + " is " + std::to_string(number) + ": too large");
  return static_cast<int32_t>(number);
}

}  // namespace

Napi::Function LibraryObject::define(Napi::Env env) {
  return DefineClass(
      env, "Library",
      {InstanceAccessor<&LibraryObject::name>("name"), InstanceAccessor<&LibraryObject::version>("version"),
       InstanceAccessor<&LibraryObject::path>("path"), InstanceMethod<&LibraryObject::probe>("probe"),
       InstanceMethod<&LibraryObject::deviceInfo>("deviceInfo"), InstanceMethod<&LibraryObject::open>("open")});
}

LibraryObject::LibraryObject(const Napi::CallbackInfo& info)
    : Napi::ObjectWrap<LibraryObject>(info), library_(making<const LoadedLibrary*>(info.Env())) {}

Napi::Value LibraryObject::name(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), library_->table->name);
}

Napi::Value LibraryObject::version(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), library_->table->version);
}

Napi::Value LibraryObject::path(const Napi::CallbackInfo& info) {
  return Napi::String::New(info.Env(), library_->path);
}

Napi::Value LibraryObject::probe(const Napi::CallbackInfo& info) {
  tsr_probe_result result{};
  result.struct_size = sizeof result;
  const tsr_status status = library_->table->probe(&result);
  if (status != TSR_OK) {
    const char* text = library_->table->last_error(nullptr);
    throw errorOf(info.Env(), codeOf(status), text && *text ? text : "the probe failed and gives no reason");
  }
  return guarded(info.Env(), [&]() -> Napi::Value {
    requireSize(*library_->table, result.struct_size, sizeof result, "probe");
    requireCount(*library_->table, "probe", "devices", result.device_count, kMostDevices);
    return toObject(info.Env(), result);
  });
}

Napi::Value LibraryObject::deviceInfo(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    tsr_device_info device{};
    device.struct_size = sizeof device;
    const tsr_status status = library_->table->device_info(smallNumber(info[0], "device"), &device);
    if (status != TSR_OK) {
      const char* text = library_->table->last_error(nullptr);
      fail(status, text && *text ? text : "no such device");
    }
    requireSize(*library_->table, device.struct_size, sizeof device, "device_info");
    return toObject(info.Env(), device);
  });
}

// open(device, threads, settle)
Napi::Value LibraryObject::open(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    if (!info[2].IsFunction()) fail(TSR_INVALID_ARGUMENT, "settle: expected a function");
    auto device =
        std::make_shared<Device>(library_->table, smallNumber(info[0], "device"), smallNumber(info[1], "threads"));
    Instance& instance = Instance::of(env);
    std::shared_ptr<Port> port = instance.portOf(env, info[2].As<Napi::Function>());
    auto session = std::make_shared<Session>(std::move(device), port);
    port->attach(session);
    return make(env, instance.context, session);
  });
}

}  // namespace tessera
