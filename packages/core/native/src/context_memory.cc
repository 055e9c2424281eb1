// Memory of a context: buffers, and bytes in and out of them.
#include "context_object.h"
#include "errors.h"

namespace tessera {

Napi::Value ContextObject::alloc(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Session& session = this->session();
    const uint64_t bytes = wholeNumber(numberOf(info[0]), "bytes");
    auto buffer = std::make_shared<Buffer>(session.deviceHandle(), bytes);
    buffers_.emplace(++lastBuffer_, std::move(buffer));
    // Tells V8 what its small object keeps alive, so that forgotten ones are collected in time.
    Napi::MemoryManagement::AdjustExternalMemory(info.Env(), static_cast<int64_t>(bytes));
    external_ += static_cast<int64_t>(bytes);
    return Napi::Number::New(info.Env(), static_cast<double>(lastBuffer_));
  });
}

Napi::Value ContextObject::free(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    auto found = buffers_.find(wholeNumber(numberOf(info[0]), "buffer"));
    if (found == buffers_.end()) return info.Env().Undefined();
    std::shared_ptr<Buffer> buffer = std::move(found->second);
    buffers_.erase(found);
    const auto bytes = static_cast<int64_t>(buffer->bytes());
    session().retire(std::move(buffer));
    Napi::MemoryManagement::AdjustExternalMemory(info.Env(), -bytes);
    external_ -= bytes;
    return info.Env().Undefined();
  });
}

std::shared_ptr<Buffer> ContextObject::bufferOf(const Napi::Value& id) {
  auto found = buffers_.find(wholeNumber(numberOf(id), "buffer"));
  if (found == buffers_.end()) fail(TSR_INVALID_ARGUMENT, "the buffer is disposed or of another context");
  return found->second;
}

uint64_t ContextObject::place(const Buffer& buffer, const Napi::Value& offset, uint64_t bytes) {
  const uint64_t start = wholeNumber(numberOf(offset), "byteOffset");
  if (start > buffer.bytes() || bytes > buffer.bytes() - start) {
    fail(TSR_INVALID_ARGUMENT, "bytes " + std::to_string(start) + " to " + std::to_string(start) + " + " +
                                   std::to_string(bytes) + " are not inside the buffer, which has " +
                                   std::to_string(buffer.bytes()));
  }
  return start;
}

// write(buffer, byteOffset, source)
Napi::Value ContextObject::write(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Session& session = this->session();
    std::shared_ptr<Buffer> buffer = bufferOf(info[0]);
    const Bytes source = bytesOfView(info.Env(), info[2], "source");
    const uint64_t offset = place(*buffer, info[1], source.size);
    Device& device = session.device();
    if (device.async()) {
      // The copy may be read by the device after this returns, and `source` is the caller's again by then.
      std::shared_ptr<uint8_t> staging(new uint8_t[source.size], std::default_delete<uint8_t[]>());
      if (source.size) memcpy(staging.get(), source.data, source.size);
      copyIn(device, *buffer, offset, staging.get(), source.size);
      session.submitted();
      if (session.capturing()) {
        session.retire(staging);
        session.retire(buffer);
      } else {
        session.enqueueWait({buffer, staging});
      }
    } else if (session.idle()) {
      copyIn(device, *buffer, offset, source.data, source.size);
    } else {
      session.enqueue(std::make_unique<WriteJob>(std::move(buffer), offset, source.data, source.size));
    }
    return info.Env().Undefined();
  });
}

// fill(buffer, byteOffset, value, bytes)
Napi::Value ContextObject::fill(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Session& session = this->session();
    std::shared_ptr<Buffer> buffer = bufferOf(info[0]);
    const uint64_t bytes = wholeNumber(numberOf(info[3]), "bytes");
    const uint64_t offset = place(*buffer, info[1], bytes);
    const auto value = static_cast<uint8_t>(wholeNumber(numberOf(info[2]), "value"));
    Device& device = session.device();
    if (device.async()) {
      tessera::fill(device, *buffer, offset, value, bytes);
      session.submitted();
    } else if (session.idle() && bytes <= kTinyCopy) {
      tessera::fill(device, *buffer, offset, value, bytes);
    } else {
      session.enqueue(std::make_unique<FillJob>(std::move(buffer), offset, value, bytes));
    }
    return info.Env().Undefined();
  });
}

// copy(from, fromOffset, to, toOffset, bytes)
Napi::Value ContextObject::copy(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Session& session = this->session();
    std::shared_ptr<Buffer> from = bufferOf(info[0]);
    std::shared_ptr<Buffer> to = bufferOf(info[2]);
    const uint64_t bytes = wholeNumber(numberOf(info[4]), "bytes");
    const uint64_t fromOffset = place(*from, info[1], bytes);
    const uint64_t toOffset = place(*to, info[3], bytes);
    Device& device = session.device();
    if (device.async() || session.capturing()) {
      copyWithin(device, *from, fromOffset, *to, toOffset, bytes);
      session.submitted();
      if (session.capturing()) session.captured({from, to});
    } else if (session.idle() && bytes <= kTinyCopy) {
      copyWithin(device, *from, fromOffset, *to, toOffset, bytes);
    } else {
      session.enqueue(std::make_unique<CopyJob>(std::move(from), fromOffset, std::move(to), toOffset, bytes));
    }
    return info.Env().Undefined();
  });
}

// read(buffer, byteOffset, target)
Napi::Value ContextObject::read(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Session& session = this->session();
    std::shared_ptr<Buffer> buffer = bufferOf(info[0]);
    const Bytes target = bytesOfView(info.Env(), info[2], "target");
    const uint64_t offset = place(*buffer, info[1], target.size);
    Device& device = session.device();
    uint64_t id = 0;
    if (session.capturing()) {
      fail(TSR_INVALID_ARGUMENT, "a read can't be captured in a graph: end the capture first");
    } else if (device.async()) {
      copyOut(device, *buffer, offset, target.data, target.size);
      session.submitted();
      id = session.enqueueWait({std::move(buffer)});
    } else if (session.idle() && target.size <= kTinyCopy) {
      session.throwFault();
      copyOut(device, *buffer, offset, target.data, target.size);
    } else {
      id = session.enqueue(std::make_unique<ReadJob>(std::move(buffer), offset, target.data, target.size));
    }
    return Napi::Number::New(info.Env(), static_cast<double>(id));
  });
}

}  // namespace tessera
