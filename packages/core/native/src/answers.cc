#include "answers.h"

#include <cstring>
#include <string>
#include <vector>

#include "failure.h"

namespace tessera {
namespace {

// A back end may fill an array of characters to its end.
template <size_t N>
Napi::String text(Napi::Env env, const char (&characters)[N]) {
  return Napi::String::New(env, characters, strnlen(characters, N));
}

Napi::Number number(Napi::Env env, double value) { return Napi::Number::New(env, value); }

constexpr uint32_t kRejections = 64;

}  // namespace

void requireCount(const tsr_backend& backend, const char* call, const char* things, int32_t count, int32_t most) {
  if (count >= 0 && count <= most) return;
  fail(TSR_INTERNAL, "defect of the back end " + std::string(backend.name) + ": " + call + " tells of " +
                         std::to_string(count) + " " + things + ", allowed: 0 to " + std::to_string(most));
}

void requireSize(const tsr_backend& backend, uint32_t size, size_t ours, const char* call) {
  if (size == ours) return;
  fail(TSR_INTERNAL, "defect of the back end " + std::string(backend.name) + ": " + call +
                         " changed its answer's struct_size to " + std::to_string(size) + ", must leave it at " +
                         std::to_string(ours));
}

Napi::Object toObject(Napi::Env env, const tsr_probe_result& result) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("state", number(env, result.state));
  object.Set("deviceCount", number(env, result.device_count));
  object.Set("reason", text(env, result.reason));
  object.Set("fix", text(env, result.fix));
  return object;
}

Napi::Object toObject(Napi::Env env, const tsr_device_info& info) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("index", number(env, info.index));
  object.Set("state", number(env, info.state));
  object.Set("caps", number(env, info.caps));
  object.Set("name", text(env, info.name));
  object.Set("arch", text(env, info.arch));
  object.Set("id", text(env, info.id));
  object.Set("memoryBytes", number(env, static_cast<double>(info.memory_bytes)));
  object.Set("computeUnits", number(env, info.compute_units));
  object.Set("sharedBytes", number(env, info.shared_bytes));
  object.Set("reason", text(env, info.reason));
  object.Set("fix", text(env, info.fix));
  return object;
}

Napi::Array kernelsOf(Napi::Env env, Device& device) {
  const tsr_backend* backend = device.backend();
  const int32_t count = backend->kernel_count(device.context());
  requireCount(*backend, "kernel_count", "kernels", count, kMostKernels);
  Napi::Array kernels = Napi::Array::New(env);
  for (int32_t i = 0; i < count; i++) {
    tsr_kernel_info info{};
    info.struct_size = sizeof info;
    device.check(backend->kernel_info(device.context(), i, &info));
    requireSize(*backend, info.struct_size, sizeof info, "kernel_info");
    Napi::Object object = Napi::Object::New(env);
    object.Set("family", number(env, info.family));
    object.Set("name", text(env, info.name));
    object.Set("usable", Napi::Boolean::New(env, info.usable != 0));
    object.Set("alignment", number(env, info.alignment));
    object.Set("qDTypes", number(env, info.q_dtypes));
    object.Set("kvDTypes", number(env, info.kv_dtypes));
    object.Set("maxHeadDim", number(env, info.max_head_dim));
    object.Set("headDimStep", number(env, info.head_dim_step));
    object.Set("roundsQ", Napi::Boolean::New(env, (info.flags & TSR_KERNEL_ROUNDS_Q) != 0));
    object.Set("flushes", Napi::Boolean::New(env, (info.flags & TSR_KERNEL_FLUSHES) != 0));
    object.Set("arch", text(env, info.arch));
    object.Set("summary", text(env, info.summary));
    object.Set("reason", text(env, info.reason));
    object.Set("byNameOnly", Napi::Boolean::New(env, (info.flags & TSR_KERNEL_BY_NAME) != 0));
    kernels.Set(static_cast<uint32_t>(i), object);
  }
  return kernels;
}

Napi::Object explain(Napi::Env env, Device& device, const tsr_attention_desc& desc) {
  std::vector<tsr_rejection> rejections(kRejections);
  tsr_explanation answer{};
  answer.struct_size = sizeof answer;
  answer.rejections = rejections.data();
  answer.rejection_capacity = kRejections;
  device.check(device.backend()->explain(device.context(), &desc, &answer));

  Napi::Object object = Napi::Object::New(env);
  object.Set("family", number(env, answer.family));
  object.Set("kernel", text(env, answer.kernel));
  object.Set("tileQ", number(env, answer.tile_q));
  object.Set("tileK", number(env, answer.tile_k));
  object.Set("stages", number(env, answer.stages));
  object.Set("splits", number(env, answer.splits));
  object.Set("threads", number(env, answer.threads));
  object.Set("sharedBytes", number(env, answer.shared_bytes));
  object.Set("workspaceBytes", number(env, static_cast<double>(answer.workspace_bytes)));
  object.Set("notes", text(env, answer.notes));
  Napi::Array passedOver = Napi::Array::New(env);
  for (uint32_t i = 0; i < answer.rejection_count && i < kRejections; i++) {
    Napi::Object rejection = Napi::Object::New(env);
    rejection.Set("kernel", text(env, rejections[i].kernel));
    rejection.Set("reason", text(env, rejections[i].reason));
    passedOver.Set(i, rejection);
  }
  object.Set("passedOver", passedOver);
  return object;
}

}  // namespace tessera
