#include "transfers.h"

#include <cstring>

namespace tessera {
namespace {

uint8_t* place(const Buffer& buffer, uint64_t offset) { return static_cast<uint8_t*>(buffer.data()) + offset; }

}  // namespace

void copyIn(Device& device, const Buffer& buffer, uint64_t offset, const uint8_t* source, uint64_t bytes) {
  if (bytes == 0) return;
  device.check(
      device.backend()->copy(device.context(), nullptr, place(buffer, offset), source, bytes, TSR_COPY_HOST_TO_DEVICE));
}

void copyOut(Device& device, const Buffer& buffer, uint64_t offset, uint8_t* target, uint64_t bytes) {
  if (bytes == 0) return;
  device.check(
      device.backend()->copy(device.context(), nullptr, target, place(buffer, offset), bytes, TSR_COPY_DEVICE_TO_HOST));
}

void copyWithin(Device& device, const Buffer& from, uint64_t fromOffset, const Buffer& to, uint64_t toOffset,
                uint64_t bytes) {
  if (bytes == 0) return;
  device.check(device.backend()->copy(device.context(), nullptr, place(to, toOffset), place(from, fromOffset), bytes,
                                      TSR_COPY_DEVICE_TO_DEVICE));
}

void fill(Device& device, const Buffer& buffer, uint64_t offset, uint8_t value, uint64_t bytes) {
  if (bytes == 0) return;
  device.check(device.backend()->fill(device.context(), nullptr, place(buffer, offset), value, bytes));
}

WriteJob::WriteJob(std::shared_ptr<Buffer> buffer, uint64_t offset, const uint8_t* source, uint64_t bytes)
    : buffer_(std::move(buffer)), offset_(offset), source_(new uint8_t[bytes]), bytes_(bytes) {
  if (bytes) std::memcpy(source_.get(), source, bytes);
}

void WriteJob::run(Session& session) {
  try {
    copyIn(session.device(), *buffer_, offset_, source_.get(), bytes_);
  } catch (const Failure& failure) {
    session.keepFault(failure);
  }
}

// Like a write: nobody waits for it, and its failure is told by the next read or synchronize.
void CopyJob::run(Session& session) {
  try {
    copyWithin(session.device(), *from_, fromOffset_, *to_, toOffset_, bytes_);
  } catch (const Failure& failure) {
    session.keepFault(failure);
  }
}

Mark::Mark(std::shared_ptr<Device> device) : device_(std::move(device)), event_(device_->takeEvent()) {
  const tsr_status status = device_->backend()->event_record(device_->context(), event_, nullptr);
  if (status == TSR_OK) return;
  device_->giveEvent(event_);
  device_->raise(status);
}

double Mark::milliseconds(const Mark& start, const Mark& stop) {
  const Device& device = *start.device_;
  double elapsed = 0;
  device.check(device.backend()->event_elapsed(device.context(), start.event_, stop.event_, &elapsed));
  return elapsed;
}

void FillJob::run(Session& session) {
  try {
    fill(session.device(), *buffer_, offset_, value_, bytes_);
  } catch (const Failure& failure) {
    session.keepFault(failure);
  }
}

void ReadJob::run(Session& session) {
  session.throwFault();
  copyOut(session.device(), *buffer_, offset_, target_, bytes_);
}

}  // namespace tessera
