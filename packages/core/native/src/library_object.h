// Library: a loaded back end, as JavaScript sees it.
#pragma once
#include <napi.h>

#include "loader.h"

namespace tessera {

class LibraryObject : public Napi::ObjectWrap<LibraryObject> {
 public:
  static Napi::Function define(Napi::Env env);
  explicit LibraryObject(const Napi::CallbackInfo& info);

 private:
  Napi::Value name(const Napi::CallbackInfo& info);
  Napi::Value version(const Napi::CallbackInfo& info);
  Napi::Value path(const Napi::CallbackInfo& info);
  Napi::Value probe(const Napi::CallbackInfo& info);
  Napi::Value deviceInfo(const Napi::CallbackInfo& info);
  Napi::Value open(const Napi::CallbackInfo& info);

  const LoadedLibrary* library_;
};

}  // namespace tessera
