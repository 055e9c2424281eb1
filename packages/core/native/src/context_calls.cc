// The contract's computing calls: (slots used, host views or undefined, kernel or undefined).
#include "answers.h"
#include "context_object.h"
#include "errors.h"
#include "instance.h"

namespace tessera {

void ContextObject::read(const Napi::CallbackInfo& info, Call call, Arguments& arguments, bool shapesOnly) {
  Session& session = this->session();
  Instance& instance = Instance::of(info.Env());
  const uint64_t count = wholeNumber(numberOf(info[0]), "count");
  if (count > instance.slotCount) fail(TSR_INVALID_ARGUMENT, "count is larger than the scratch array");
  if (info[2].IsString()) {
    arguments.kernel = info[2].As<Napi::String>().Utf8Value();
    if (arguments.kernel.find('\0') != std::string::npos) fail(TSR_INVALID_ARGUMENT, "kernel: a name can't hold NUL");
  }
  Reader reader(info.Env(), instance.slots, count, info[1], buffers_, session.device().hostMemory(), arguments);
  if (shapesOnly) reader.shapesOnly();
  switch (call) {
    case Call::attention:
      reader.attention();
      break;
    case Call::append:
      reader.append();
      break;
    case Call::decode:
      reader.decode();
      break;
    case Call::merge:
      reader.merge();
      break;
  }
}

Napi::Value ContextObject::submit(const Napi::CallbackInfo& info, Call call) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Session& session = this->session();
    std::unique_ptr<CallJob> job = std::move(spare_);
    if (job) {
      job->reuse(call);
    } else {
      job = std::make_unique<CallJob>(call);
    }
    const bool async = session.device().async();
    job->arguments.keeps = !async || session.capturing();
    read(info, call, job->arguments);
    double id = 0;
    if (async || session.capturing()) {
      job->run(session);
      if (job->arguments.hostViews && !session.capturing()) id = -static_cast<double>(session.enqueueWait({}));
    } else if (session.idle() && job->tiny()) {
      job->run(session);
    } else {
      id = static_cast<double>(session.enqueue(std::move(job)));
    }
    if (job) {
      job->arguments.keep.clear();
      spare_ = std::move(job);
    }
    return Napi::Number::New(info.Env(), id);
  });
}

Napi::Value ContextObject::attention(const Napi::CallbackInfo& info) { return submit(info, Call::attention); }
Napi::Value ContextObject::append(const Napi::CallbackInfo& info) { return submit(info, Call::append); }
Napi::Value ContextObject::decode(const Napi::CallbackInfo& info) { return submit(info, Call::decode); }
Napi::Value ContextObject::merge(const Napi::CallbackInfo& info) { return submit(info, Call::merge); }

// undefined, or [status, reason]
Napi::Value ContextObject::supports(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Arguments arguments;
    read(info, Call::attention, arguments, true);
    const tsr_status status = device_->backend()->supports(device_->context(), &arguments.attention);
    if (status == TSR_OK) return info.Env().Undefined();
    const bool unsupported = status == TSR_UNSUPPORTED;
    if (!unsupported && status != TSR_INVALID_ARGUMENT) device_->raise(status);
    Napi::Array answer = Napi::Array::New(info.Env(), 2);
    answer.Set(uint32_t{0}, Napi::String::New(info.Env(), codeOf(status)));
    answer.Set(uint32_t{1}, Napi::String::New(info.Env(), device_->backend()->last_error(device_->context())));
    return answer;
  });
}

Napi::Value ContextObject::explain(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Arguments arguments;
    read(info, Call::attention, arguments, true);
    return tessera::explain(info.Env(), *device_, arguments.attention);
  });
}

}  // namespace tessera
