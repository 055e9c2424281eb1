// Jobs that move bytes, wait, or replay a graph.
#pragma once
#include <memory>

#include "session.h"

namespace tessera {

/** A recorded graph and what its calls use. */
class Graph {
 public:
  Graph(std::shared_ptr<Device> device, tsr_graph* graph, Kept used)
      : device_(std::move(device)), graph_(graph), used_(std::move(used)) {}
  ~Graph() { device_->backend()->graph_destroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch() { device_->check(device_->backend()->graph_launch(device_->context(), graph_, nullptr)); }

 private:
  std::shared_ptr<Device> device_;
  tsr_graph* graph_;
  Kept used_;
};

/** Host bytes into a buffer. Nobody waits for it: its failure is told by the next read or synchronize. */
class WriteJob : public Job {
 public:
  WriteJob(std::shared_ptr<Buffer> buffer, uint64_t offset, const uint8_t* source, uint64_t bytes);
  void run(Session& session) override;

 private:
  std::shared_ptr<Buffer> buffer_;
  uint64_t offset_;
  std::unique_ptr<uint8_t[]> source_;
  uint64_t bytes_;
};

class CopyJob : public Job {
 public:
  CopyJob(std::shared_ptr<Buffer> from, uint64_t fromOffset, std::shared_ptr<Buffer> to, uint64_t toOffset,
          uint64_t bytes)
      : from_(std::move(from)), fromOffset_(fromOffset), to_(std::move(to)), toOffset_(toOffset), bytes_(bytes) {}
  void run(Session& session) override;

 private:
  std::shared_ptr<Buffer> from_;
  uint64_t fromOffset_;
  std::shared_ptr<Buffer> to_;
  uint64_t toOffset_;
  uint64_t bytes_;
};

class FillJob : public Job {
 public:
  FillJob(std::shared_ptr<Buffer> buffer, uint64_t offset, uint8_t value, uint64_t bytes)
      : buffer_(std::move(buffer)), offset_(offset), value_(value), bytes_(bytes) {}
  void run(Session& session) override;

 private:
  std::shared_ptr<Buffer> buffer_;
  uint64_t offset_;
  uint8_t value_;
  uint64_t bytes_;
};

/** JavaScript keeps `target` until the job is settled. */
class ReadJob : public Job {
 public:
  ReadJob(std::shared_ptr<Buffer> buffer, uint64_t offset, uint8_t* target, uint64_t bytes)
      : buffer_(std::move(buffer)), offset_(offset), target_(target), bytes_(bytes) {}
  void run(Session& session) override;

 private:
  std::shared_ptr<Buffer> buffer_;
  uint64_t offset_;
  uint8_t* target_;
  uint64_t bytes_;
};

/** A point in the queue of a device. */
class Mark {
 public:
  /** Recorded behind the work submitted so far. */
  explicit Mark(std::shared_ptr<Device> device);
  ~Mark() { device_->giveEvent(event_); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  /** Waits for both. */
  static double milliseconds(const Mark& start, const Mark& stop);

 private:
  std::shared_ptr<Device> device_;
  tsr_event* event_;
};

/** JavaScript keeps `target` until the job is settled. */
class ElapsedJob : public Job {
 public:
  ElapsedJob(std::shared_ptr<Mark> start, std::shared_ptr<Mark> stop, double* target)
      : start_(std::move(start)), stop_(std::move(stop)), target_(target) {}
  void run(Session&) override { *target_ = Mark::milliseconds(*start_, *stop_); }

 private:
  std::shared_ptr<Mark> start_;
  std::shared_ptr<Mark> stop_;
  double* target_;
};

/** Of a device without queues: its turn comes when all before it is done. */
class SynchronizeJob : public Job {
 public:
  void run(Session& session) override { session.throwFault(); }
};

class LaunchJob : public Job {
 public:
  explicit LaunchJob(std::shared_ptr<Graph> graph) : graph_(std::move(graph)) {}
  void run(Session&) override { graph_->launch(); }

 private:
  std::shared_ptr<Graph> graph_;
};

/** buffer[offset, offset + bytes) = source */
void copyIn(Device& device, const Buffer& buffer, uint64_t offset, const uint8_t* source, uint64_t bytes);
/** target = buffer[offset, offset + bytes) */
void copyOut(Device& device, const Buffer& buffer, uint64_t offset, uint8_t* target, uint64_t bytes);
/** to[toOffset, toOffset + bytes) = from[fromOffset, ...) */
void copyWithin(Device& device, const Buffer& from, uint64_t fromOffset, const Buffer& to, uint64_t toOffset,
                uint64_t bytes);
void fill(Device& device, const Buffer& buffer, uint64_t offset, uint8_t value, uint64_t bytes);

}  // namespace tessera
