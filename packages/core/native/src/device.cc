#include "device.h"

#include "exit_guard.h"

namespace tessera {

Buffer::Buffer(std::shared_ptr<Device> device, uint64_t bytes) : device_(std::move(device)), bytes_(bytes) {
  if (bytes == 0) return;
  const tsr_backend* backend = device_->backend();
  const tsr_status status = backend->buffer_create(device_->context(), bytes, &buffer_);
  if (status != TSR_OK) device_->raise(status);
  if (!buffer_) fail(TSR_INTERNAL, "the back end reports success but gives no buffer");
  data_ = backend->buffer_data(buffer_);
  device_->bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

Buffer::~Buffer() {
  if (!buffer_) return;
  device_->backend()->buffer_destroy(buffer_);
  device_->bytes_.fetch_sub(bytes_, std::memory_order_relaxed);
}

Device::Device(const tsr_backend* backend, int32_t index, int32_t threads) : backend_(backend) {
  info_.struct_size = sizeof info_;
  tsr_status status = backend->device_info(index, &info_);
  if (status != TSR_OK) raise(status);
  tsr_context_desc desc{};
  desc.struct_size = sizeof desc;
  desc.device = index;
  desc.threads = threads;
  status = backend->context_create(&desc, &context_);
  exit_guard::arm();
  if (status != TSR_OK) raise(status);
  if (!context_) fail(TSR_INTERNAL, "the back end reports success but gives no context");
  if (async())
    exit_guard::addQueue(this, [backend, context = context_] { backend->stream_synchronize(context, nullptr); });
}

Device::~Device() {
  if (async()) exit_guard::removeQueue(this);
  for (tsr_event* event : events_) backend_->event_destroy(event);
  backend_->context_destroy(context_);
}

void Device::raise(tsr_status status) const {
  const char* text = backend_->last_error(context_);
  std::string message = text && *text ? text : "the back end gives no reason (status " + std::to_string(status) + ")";
  if (status < TSR_OK || status >= TSR_INTERNAL) {
    message = "defect of the back end " + std::string(backend_->name) + ": " + message;
  }
  fail(status, std::move(message));
}

tsr_event* Device::takeEvent() {
  {
    std::lock_guard<std::mutex> lock(eventsMutex_);
    if (!events_.empty()) {
      tsr_event* event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  tsr_event* event = nullptr;
  check(backend_->event_create(context_, &event));
  return event;
}

void Device::giveEvent(tsr_event* event) {
  std::lock_guard<std::mutex> lock(eventsMutex_);
  events_.push_back(event);
}

}  // namespace tessera
