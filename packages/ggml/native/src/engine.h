// The engine's library: found, opened, and held for the life of the process.
#pragma once

#include "tessera/tessera.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace tsr::ggml {

class Engine {
 public:
  /**
   * Opens libtessera-<name>.so: beside the plug-in, by TESSERA_BACKEND_PATH, out of a node_modules. nullptr, and one line that
   * says what was tried, if there is none or it can't be used.
   */
  static Engine* open(const std::string& name, std::string* why);

  const tsr_backend& table() const { return *table_; }
  const std::string& path() const { return path_; }
  int device_count() const { return device_count_; }

  /** The context of a device with so many threads (0: as many as the engine likes); made when first asked for. */
  tsr_context* context(int device, int threads, std::string* why);

 private:
  Engine() = default;
  const tsr_backend* table_ = nullptr;
  std::string path_;
  int device_count_ = 0;
  std::mutex mutex_;
  std::map<std::pair<int, int>, tsr_context*> contexts_;
};

/** Memory that grows to what was last asked for, aligned to 64 bytes. */
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();
  /** nullptr if there is no such amount; contents are lost when it grows. */
  void* at_least(size_t bytes);

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace tsr::ggml
