// The way back to JavaScript: finished jobs of any thread are handed to one function of one environment,
// settle(id, status, text). While something is on its way the event loop stays alive.
#pragma once
#include <napi.h>

#include <memory>
#include <mutex>
#include <vector>

#include "job.h"

namespace tessera {

class Port : public std::enable_shared_from_this<Port> {
 public:
  static std::shared_ptr<Port> open(Napi::Env env, Napi::Function settle);
  ~Port();

  bool settlesWith(Napi::Function settle) const { return settle_.Value().StrictEquals(settle); }

  // On the JavaScript thread.
  uint64_t nextId() { return ++lastId_; }
  void attach(const std::shared_ptr<Session>& session);
  /** One more, or one less, job that JavaScript waits for. */
  void retain();
  void release();

  // On any thread.
  void complete(std::unique_ptr<Job> job);

 private:
  explicit Port(Napi::Env env, Napi::Function settle);
  static void cleanUp(void* port);
  static void ring(napi_env env, napi_value settle, void* port, void* data);
  void drain(Napi::Env env, Napi::Function settle);

  Napi::FunctionReference settle_;
  napi_threadsafe_function bell_ = nullptr;
  uint64_t lastId_ = 0;
  uint64_t waiting_ = 0;
  std::vector<std::weak_ptr<Session>> sessions_;

  std::mutex mutex_;
  std::vector<std::unique_ptr<Job>> done_;
  bool rung_ = false;
  bool closed_ = false;
  std::shared_ptr<Port> self_;  // until the environment ends
};

}  // namespace tessera
