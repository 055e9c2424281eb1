// Context and Graph: one device in use, as JavaScript sees it.
//
// A call returns a number: 0 = done (or submitted to a device with queues), n > 0 = settle(n, ...) tells when it is done,
// -n = submitted, but the host arrays it uses must be kept until settle(n, ...).
#pragma once
#include <napi.h>

#include <memory>
#include <unordered_map>

#include "calls.h"
#include "reader.h"
#include "session.h"
#include "transfers.h"

namespace tessera {

class ContextObject : public Napi::ObjectWrap<ContextObject> {
 public:
  static Napi::Function define(Napi::Env env);
  explicit ContextObject(const Napi::CallbackInfo& info);
  ~ContextObject() override;
  void Finalize(Napi::Env env) override;

 private:
  // context_object.cc
  Napi::Value device(const Napi::CallbackInfo& info);
  Napi::Value bytesInUse(const Napi::CallbackInfo& info);
  Napi::Value kernels(const Napi::CallbackInfo& info);
  Napi::Value synchronize(const Napi::CallbackInfo& info);
  Napi::Value cancel(const Napi::CallbackInfo& info);
  Napi::Value beginCapture(const Napi::CallbackInfo& info);
  Napi::Value endCapture(const Napi::CallbackInfo& info);
  Napi::Value mark(const Napi::CallbackInfo& info);
  Napi::Value forget(const Napi::CallbackInfo& info);
  Napi::Value elapsed(const Napi::CallbackInfo& info);
  Napi::Value dispose(const Napi::CallbackInfo& info);
  // context_memory.cc
  Napi::Value alloc(const Napi::CallbackInfo& info);
  Napi::Value free(const Napi::CallbackInfo& info);
  Napi::Value write(const Napi::CallbackInfo& info);
  Napi::Value fill(const Napi::CallbackInfo& info);
  Napi::Value copy(const Napi::CallbackInfo& info);
  Napi::Value read(const Napi::CallbackInfo& info);
  // context_calls.cc
  Napi::Value supports(const Napi::CallbackInfo& info);
  Napi::Value explain(const Napi::CallbackInfo& info);
  Napi::Value attention(const Napi::CallbackInfo& info);
  Napi::Value append(const Napi::CallbackInfo& info);
  Napi::Value decode(const Napi::CallbackInfo& info);
  Napi::Value merge(const Napi::CallbackInfo& info);

  Session& session();
  std::shared_ptr<Buffer> bufferOf(const Napi::Value& id);
  std::shared_ptr<Mark> markOf(const Napi::Value& id);
  uint64_t place(const Buffer& buffer, const Napi::Value& offset, uint64_t bytes);
  void read(const Napi::CallbackInfo& info, Call call, Arguments& arguments, bool shapesOnly = false);
  Napi::Value submit(const Napi::CallbackInfo& info, Call call);
  void close();

  std::shared_ptr<Session> session_;
  /** After dispose, for calls that are still to finish and may be aborted. */
  std::weak_ptr<Session> disposed_;
  std::shared_ptr<Device> device_;
  Buffers buffers_;
  /** Of a call that was over when it returned: the next one needs no memory of its own. */
  std::unique_ptr<CallJob> spare_;
  uint64_t lastBuffer_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<Mark>> marks_;
  uint64_t lastMark_ = 0;
  int64_t external_ = 0;
};

class GraphObject : public Napi::ObjectWrap<GraphObject> {
 public:
  struct Parts {
    std::shared_ptr<Session> session;
    std::shared_ptr<Graph> graph;
  };
  static Napi::Function define(Napi::Env env);
  explicit GraphObject(const Napi::CallbackInfo& info);
  ~GraphObject() override;

 private:
  Napi::Value launch(const Napi::CallbackInfo& info);
  Napi::Value dispose(const Napi::CallbackInfo& info);
  void close();

  Parts parts_;
};

/** The value of an argument that should be a number; NaN if it isn't. */
double numberOf(const Napi::Value& value);

}  // namespace tessera
