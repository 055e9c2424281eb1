#include "port.h"

#include "session.h"

namespace tessera {

std::shared_ptr<Port> Port::open(Napi::Env env, Napi::Function settle) {
  std::shared_ptr<Port> port(new Port(env, settle));
  port->self_ = port;
  return port;
}

Port::Port(Napi::Env env, Napi::Function settle) : settle_(Napi::Persistent(settle)) {
  napi_status status = napi_create_threadsafe_function(env, settle, nullptr, Napi::String::New(env, "tessera"), 0, 1,
                                                       nullptr, nullptr, this, ring, &bell_);
  if (status != napi_ok) fail(TSR_INTERNAL, "Node can't create a thread-safe function");
  napi_unref_threadsafe_function(env, bell_);
  // Hooks run last in, first out: ours, which silences the threads, before the one that closes the bell.
  napi_add_env_cleanup_hook(env, cleanUp, this);
}

Port::~Port() { settle_.SuppressDestruct(); }  // the environment is gone by then, and the reference with it

void Port::attach(const std::shared_ptr<Session>& session) {
  size_t kept = 0;
  for (auto& other : sessions_) {
    if (!other.expired()) sessions_[kept++] = std::move(other);
  }
  sessions_.resize(kept);
  sessions_.push_back(session);
}

void Port::retain() {
  if (waiting_++ == 0 && bell_) napi_ref_threadsafe_function(settle_.Env(), bell_);
}

void Port::release() {
  if (--waiting_ == 0 && bell_) napi_unref_threadsafe_function(settle_.Env(), bell_);
}

void Port::complete(std::unique_ptr<Job> job) {
  std::lock_guard<std::mutex> lock(mutex_);
  done_.push_back(std::move(job));
  if (rung_ || closed_) return;
  rung_ = true;
  napi_call_threadsafe_function(bell_, nullptr, napi_tsfn_nonblocking);
}

void Port::ring(napi_env env, napi_value settle, void* port, void*) {
  if (env) static_cast<Port*>(port)->drain(Napi::Env(env), Napi::Function(env, settle));
}

void Port::drain(Napi::Env env, Napi::Function settle) {
  std::vector<std::unique_ptr<Job>> done;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    rung_ = false;
    done.swap(done_);
  }
  // Plain Node-API: in a worker that is being terminated every call may fail, and the C++ wrapper would abort over it.
  for (std::unique_ptr<Job>& job : done) {
    job->session->settled();
    release();
    Napi::HandleScope scope(env);
    napi_value receiver = nullptr, arguments[3] = {};
    const bool told = napi_get_undefined(env, &receiver) == napi_ok &&
                      napi_create_double(env, static_cast<double>(job->id), &arguments[0]) == napi_ok &&
                      napi_create_int32(env, job->status, &arguments[1]) == napi_ok &&
                      napi_create_string_utf8(env, job->text.data(), job->text.size(), &arguments[2]) == napi_ok &&
                      napi_call_function(env, receiver, settle, 3, arguments, nullptr) == napi_ok;
    napi_value exception = nullptr;
    if (!told) napi_get_and_clear_last_exception(env, &exception);
  }
}

void Port::cleanUp(void* data) {
  auto* port = static_cast<Port*>(data);
  {
    std::lock_guard<std::mutex> lock(port->mutex_);
    port->closed_ = true;
  }
  for (auto& weak : port->sessions_) {
    if (auto session = weak.lock()) session->halt();
  }
  std::vector<std::unique_ptr<Job>> done;
  {
    std::lock_guard<std::mutex> lock(port->mutex_);
    done.swap(port->done_);
  }
  napi_release_threadsafe_function(port->bell_, napi_tsfn_abort);
  port->bell_ = nullptr;
  done.clear();
  port->self_.reset();
}

}  // namespace tessera
