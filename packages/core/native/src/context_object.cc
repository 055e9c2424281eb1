#include "context_object.h"

#include <cmath>

#include "answers.h"
#include "errors.h"
#include "instance.h"

namespace tessera {

double numberOf(const Napi::Value& value) {
  return value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : std::nan("");
}

Napi::Function ContextObject::define(Napi::Env env) {
  using C = ContextObject;
  return DefineClass(env, "Context",
                     {InstanceAccessor<&C::device>("device"),
                      InstanceAccessor<&C::bytesInUse>("bytesInUse"),
                      InstanceMethod<&C::kernels>("kernels"),
                      InstanceMethod<&C::synchronize>("synchronize"),
                      InstanceMethod<&C::cancel>("cancel"),
                      InstanceMethod<&C::beginCapture>("beginCapture"),
                      InstanceMethod<&C::endCapture>("endCapture"),
                      InstanceMethod<&C::mark>("mark"),
                      InstanceMethod<&C::forget>("forget"),
                      InstanceMethod<&C::elapsed>("elapsed"),
                      InstanceMethod<&C::copy>("copy"),
                      InstanceMethod<&C::dispose>("dispose"),
                      InstanceMethod<&C::alloc>("alloc"),
                      InstanceMethod<&C::free>("free"),
                      InstanceMethod<&C::write>("write"),
                      InstanceMethod<&C::fill>("fill"),
                      InstanceMethod<&C::read>("read"),
                      InstanceMethod<&C::supports>("supports"),
                      InstanceMethod<&C::explain>("explain"),
                      InstanceMethod<&C::attention>("attention"),
                      InstanceMethod<&C::append>("append"),
                      InstanceMethod<&C::decode>("decode"),
                      InstanceMethod<&C::merge>("merge")});
}

ContextObject::ContextObject(const Napi::CallbackInfo& info)
    : Napi::ObjectWrap<ContextObject>(info),
      session_(making<std::shared_ptr<Session>>(info.Env())),
      device_(session_->deviceHandle()) {}

ContextObject::~ContextObject() { close(); }

void ContextObject::Finalize(Napi::Env env) { Napi::MemoryManagement::AdjustExternalMemory(env, -external_); }

Session& ContextObject::session() {
  if (!session_) fail(TSR_INVALID_ARGUMENT, "the context is disposed");
  return *session_;
}

// Buffers go when the calls that use them are done; the context goes after the last of them.
void ContextObject::close() {
  if (!session_) return;
  if (session_->capturing()) {
    tsr_graph* graph = nullptr;
    if (device_->backend()->graph_end(device_->context(), nullptr, &graph) == TSR_OK) {
      device_->backend()->graph_destroy(graph);
    }
    session_->endCapture();
  }
  for (auto& entry : buffers_) session_->retire(std::move(entry.second));
  buffers_.clear();
  for (auto& entry : marks_) session_->retire(std::move(entry.second));
  marks_.clear();
  session_->close();
  disposed_ = session_;
  session_.reset();
  device_.reset();
}

Napi::Value ContextObject::dispose(const Napi::CallbackInfo& info) {
  close();
  Napi::MemoryManagement::AdjustExternalMemory(info.Env(), -external_);
  external_ = 0;
  return info.Env().Undefined();
}

Napi::Value ContextObject::device(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] { return Napi::Value(toObject(info.Env(), session().device().info())); });
}

Napi::Value ContextObject::bytesInUse(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), device_ ? static_cast<double>(device_->bytesInUse()) : 0);
}

Napi::Value ContextObject::kernels(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&] { return Napi::Value(kernelsOf(info.Env(), session().device())); });
}

Napi::Value ContextObject::synchronize(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Session& session = this->session();
    if (session.capturing()) {
      fail(TSR_INVALID_ARGUMENT, "work that is being captured in a graph can't be waited for: end the capture first");
    }
    // With queues, for an event that is recorded here and now: the stream itself may be in capture by the time that the
    // session's thread gets to wait, and waiting for it then would spoil the graph.
    if (session.device().async()) {
      return Napi::Number::New(info.Env(), static_cast<double>(session.enqueueWait({})));
    }
    if (session.idle()) {
      session.throwFault();
      return Napi::Number::New(info.Env(), 0);
    }
    const uint64_t id = session.enqueue(std::make_unique<SynchronizeJob>());
    return Napi::Number::New(info.Env(), static_cast<double>(id));
  });
}

Napi::Value ContextObject::cancel(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const uint64_t id = wholeNumber(numberOf(info[0]), "id");
    const std::shared_ptr<Session> session = session_ ? session_ : disposed_.lock();
    return Napi::Boolean::New(info.Env(), session && session->cancel(id));
  });
}

Napi::Value ContextObject::beginCapture(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Session& session = this->session();
    if (session.capturing()) fail(TSR_INVALID_ARGUMENT, "a graph is being captured already");
    if (!session.device().async() && !session.idle()) {
      fail(TSR_INVALID_ARGUMENT, "calls are still running: synchronize before capturing");
    }
    session.device().check(device_->backend()->graph_begin(device_->context(), nullptr));
    session.beginCapture();
    return info.Env().Undefined();
  });
}

Napi::Value ContextObject::endCapture(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Session& session = this->session();
    if (!session.capturing()) fail(TSR_INVALID_ARGUMENT, "no graph is being captured");
    tsr_graph* graph = nullptr;
    const tsr_status status = device_->backend()->graph_end(device_->context(), nullptr, &graph);
    Kept used = session.endCapture();
    device_->check(status);
    GraphObject::Parts parts{session_, std::make_shared<Graph>(device_, graph, std::move(used))};
    return make(info.Env(), Instance::of(info.Env()).graph, parts);
  });
}

// mark(): a point in the queue, for `elapsed`. @return its id
Napi::Value ContextObject::mark(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Session& session = this->session();
    if (!session.device().async()) fail(TSR_UNSUPPORTED, "this device has no queue: its calls end when they return");
    if (session.capturing()) fail(TSR_INVALID_ARGUMENT, "a mark can't be captured in a graph: end the capture first");
    marks_.emplace(++lastMark_, std::make_shared<Mark>(session.deviceHandle()));
    session.submitted();
    return Napi::Number::New(info.Env(), static_cast<double>(lastMark_));
  });
}

// forget(mark): its event goes when the queue has reached it
Napi::Value ContextObject::forget(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    auto found = marks_.find(wholeNumber(numberOf(info[0]), "mark"));
    if (found == marks_.end()) return info.Env().Undefined();
    std::shared_ptr<Mark> mark = std::move(found->second);
    marks_.erase(found);
    session().retire(std::move(mark));
    return info.Env().Undefined();
  });
}

std::shared_ptr<Mark> ContextObject::markOf(const Napi::Value& id) {
  auto found = marks_.find(wholeNumber(numberOf(id), "mark"));
  if (found == marks_.end()) fail(TSR_INVALID_ARGUMENT, "the mark is disposed or of another context");
  return found->second;
}

// elapsed(start, stop, target): target[0] = milliseconds, once both are reached
Napi::Value ContextObject::elapsed(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Session& session = this->session();
    std::shared_ptr<Mark> start = markOf(info[0]);
    std::shared_ptr<Mark> stop = markOf(info[1]);
    if (!info[2].IsTypedArray() || info[2].As<Napi::TypedArray>().TypedArrayType() != napi_float64_array ||
        info[2].As<Napi::TypedArray>().ElementLength() != 1) {
      fail(TSR_INVALID_ARGUMENT, "target must be a Float64Array of one element");
    }
    double* target = info[2].As<Napi::Float64Array>().Data();
    const uint64_t id = session.enqueue(std::make_unique<ElapsedJob>(std::move(start), std::move(stop), target));
    return Napi::Number::New(info.Env(), static_cast<double>(id));
  });
}

Napi::Function GraphObject::define(Napi::Env env) {
  return DefineClass(
      env, "Graph", {InstanceMethod<&GraphObject::launch>("launch"), InstanceMethod<&GraphObject::dispose>("dispose")});
}

GraphObject::GraphObject(const Napi::CallbackInfo& info)
    : Napi::ObjectWrap<GraphObject>(info), parts_(making<Parts>(info.Env())) {}

GraphObject::~GraphObject() { close(); }

void GraphObject::close() {
  if (!parts_.graph) return;
  parts_.session->retire(std::move(parts_.graph));
  parts_ = {};
}

Napi::Value GraphObject::dispose(const Napi::CallbackInfo& info) {
  close();
  return info.Env().Undefined();
}

Napi::Value GraphObject::launch(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    if (!parts_.graph) fail(TSR_INVALID_ARGUMENT, "the graph is disposed");
    Session& session = *parts_.session;
    if (session.device().async()) {
      parts_.graph->launch();
      session.submitted();
      return Napi::Number::New(info.Env(), 0);
    }
    const uint64_t id = session.enqueue(std::make_unique<LaunchJob>(parts_.graph));
    return Napi::Number::New(info.Env(), static_cast<double>(id));
  });
}

}  // namespace tessera
