#include "session.h"

#include <algorithm>
#include <system_error>
#include <thread>

#include "exit_guard.h"

namespace tessera {
namespace {

// A workspace up to this size is kept between calls. Larger ones come back to the device: they are the exception (many
// KV splits of a long prefill) and would be held for nothing.
constexpr uint64_t kKeptWorkspace = 64u << 20;
constexpr uint64_t kWorkspaceStep = 64u << 10;

/** Waits for the work of a device with queues, and lets go of what that work used. */
class WaitJob : public Job {
 public:
  WaitJob(std::shared_ptr<Device> device, uint64_t mark, Kept kept)
      : device_(std::move(device)), event_(device_->takeEvent()), mark_(mark), kept_(std::move(kept)) {
    const tsr_status status = device_->backend()->event_record(device_->context(), event_, nullptr);
    if (status == TSR_OK) return;
    device_->giveEvent(event_);
    device_->raise(status);
  }
  ~WaitJob() override { device_->giveEvent(event_); }

  void run(Session& session) override {
    device_->check(device_->backend()->event_synchronize(device_->context(), event_));
    session.reached(mark_);
  }

 private:
  std::shared_ptr<Device> device_;
  tsr_event* event_;
  uint64_t mark_;
  Kept kept_;
};

}  // namespace

void Job::execute(Session& session) noexcept {
  try {
    if (cancel.load()) fail(TSR_ABORTED, "aborted");
    run(session);
  } catch (const Failure& failure) {
    status = failure.status;
    text = failure.text;
  } catch (const std::bad_alloc&) {
    status = TSR_OUT_OF_MEMORY;
    text = "out of host memory";
  } catch (const std::exception& error) {
    status = TSR_INTERNAL;
    text = error.what();
  } catch (...) {
    status = TSR_INTERNAL;
    text = "unknown failure";
  }
}

Session::Session(std::shared_ptr<Device> device, std::shared_ptr<Port> port)
    : device_(std::move(device)), port_(std::move(port)) {}

uint64_t Session::enqueue(std::unique_ptr<Job> job) {
  const uint64_t id = job->id = port_->nextId();
  job->session = shared_from_this();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    start();
    queue_.push_back(std::move(job));
  }
  outstanding_++;
  port_->retain();
  changed_.notify_all();
  return id;
}

bool Session::cancel(uint64_t id) {
  std::unique_ptr<Job> dropped;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (running_ && running_->id == id) running_->cancel.store(1);
    auto at = std::find_if(queue_.begin(), queue_.end(), [id](const auto& job) { return job->id == id; });
    if (at == queue_.end()) return false;
    dropped = std::move(*at);
    queue_.erase(at);
  }
  settled();
  port_->release();
  return true;
}

// Called with mutex_ held: the thread decides under it to end.
void Session::start() {
  if (started_) return;
  try {
    std::thread(loop, shared_from_this()).detach();
  } catch (const std::system_error& error) {
    fail(TSR_OUT_OF_MEMORY, std::string("no thread for the context: ") + error.what());
  }
  started_ = true;
}

void Session::loop(std::shared_ptr<Session> self) {
  bool first = true;
  for (;;) {
    std::unique_ptr<Job> job;
    {
      std::unique_lock<std::mutex> lock(self->mutex_);
      self->changed_.wait(lock, [&] { return !self->queue_.empty() || self->closing_; });
      if (self->queue_.empty()) {
        self->started_ = false;
        self->changed_.notify_all();
        break;
      }
      job = std::move(self->queue_.front());
      self->queue_.pop_front();
      self->running_ = job.get();
    }
    {
      exit_guard::Inside inside(&job->cancel);
      job->execute(*self);
    }
    if (first) exit_guard::arm();
    first = false;
    {
      std::lock_guard<std::mutex> lock(self->mutex_);
      self->running_ = nullptr;
    }
    self->port_->complete(std::move(job));
  }
  exit_guard::Inside inside(nullptr);
  self.reset();  // the last one to go destroys the context
}

void Session::close() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
}

void Session::halt() {
  std::deque<std::unique_ptr<Job>> dropped;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    closing_ = true;
    dropped.swap(queue_);
    if (running_) running_->cancel.store(1);
    changed_.notify_all();
    changed_.wait(lock, [&] { return !started_; });
  }
  if (inFlight()) device_->backend()->stream_synchronize(device_->context(), nullptr);
  reached(submitted_);
  dropped.clear();
}

void Session::retire(std::shared_ptr<void> used) {
  if (capture_) {
    capture_->push_back(std::move(used));
  } else if (inFlight()) {
    try {
      enqueueWait({std::move(used)});
    } catch (const Failure&) {
      // The device is in no state to wait for; whoever synchronises hears of it.
    }
  }
}

uint64_t Session::enqueueWait(Kept kept) {
  return enqueue(std::make_unique<WaitJob>(device_, submitted_, std::move(kept)));
}

void Session::beginCapture() { capture_.emplace(); }

Kept Session::endCapture() {
  Kept used = std::move(*capture_);
  capture_.reset();
  return used;
}

void Session::captured(const std::vector<std::shared_ptr<Buffer>>& used) {
  capture_->insert(capture_->end(), used.begin(), used.end());
  if (workspace_) capture_->push_back(workspace_);
}

void* Session::workspace(uint64_t bytes) {
  if (bytes == 0) return nullptr;
  if (!workspace_ || workspace_->bytes() < bytes) {
    if (workspace_ && device_->async()) retire(std::move(workspace_));
    workspace_.reset();
    const uint64_t rounded =
        bytes > UINT64_MAX - kWorkspaceStep ? bytes : (bytes + kWorkspaceStep - 1) / kWorkspaceStep * kWorkspaceStep;
    workspace_ = std::make_shared<Buffer>(device_, rounded);
  }
  return workspace_->data();
}

void Session::releaseLargeWorkspace() {
  if (!workspace_ || workspace_->bytes() <= kKeptWorkspace) return;
  if (device_->async()) retire(std::move(workspace_));
  workspace_.reset();
}

void Session::keepFault(Failure fault) {
  if (!fault_) fault_ = std::move(fault);
}

void Session::throwFault() {
  if (!fault_) return;
  Failure fault = std::move(*fault_);
  fault_.reset();
  throw fault;
}

}  // namespace tessera
