// What one JavaScript environment (the main thread, a worker) has of its own.
#pragma once
#include <napi.h>

#include <memory>
#include <vector>

#include "port.h"

namespace tessera {

struct Instance {
  static Instance& of(Napi::Env env) { return *env.GetInstanceData<Instance>(); }

  Napi::FunctionReference library;
  Napi::FunctionReference context;
  Napi::FunctionReference graph;
  /** What the constructor that runs next is made from: JavaScript can't construct these classes by itself. */
  void* making = nullptr;

  /** Where JavaScript packs a call. */
  Napi::Reference<Napi::Float64Array> scratch;
  double* slots = nullptr;
  size_t slotCount = 0;

  std::vector<std::shared_ptr<Port>> ports;

  Napi::Value reserve(Napi::Env env, size_t count);
  std::shared_ptr<Port> portOf(Napi::Env env, Napi::Function settle);
};

/** `constructor.New()` with `*from` for the C++ constructor to take. */
template <typename From>
Napi::Object make(Napi::Env env, const Napi::FunctionReference& constructor, From& from) {
  Instance& instance = Instance::of(env);
  instance.making = &from;
  Napi::Object made = constructor.New({});
  instance.making = nullptr;
  return made;
}

/** What `make` was given; throws if JavaScript called the constructor. */
template <typename From>
From& making(Napi::Env env) {
  Instance& instance = Instance::of(env);
  void* from = instance.making;
  instance.making = nullptr;
  if (!from) throw Napi::TypeError::New(env, "Illegal constructor");
  return *static_cast<From*>(from);
}

}  // namespace tessera
