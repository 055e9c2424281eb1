#include "engine.h"

#include "ggml_functions.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace tsr::ggml {

namespace {

#if defined(__aarch64__)
#define TSR_PLATFORM "linux-arm64"
#else
#define TSR_PLATFORM "linux-x64"
#endif
#if defined(__GLIBC__)
constexpr const char* kPlatform = TSR_PLATFORM "-gnu";
#else
constexpr const char* kPlatform = TSR_PLATFORM "-musl";
#endif

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

/** The folder of this very library, links followed: pnpm's node_modules are made of them. */
std::string own_folder() {
  Dl_info info;
  char real[PATH_MAX];
  if (dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0 || realpath(info.dli_fname, real) == nullptr) return "";
  return parent(real);
}

std::vector<std::string> split(const char* list) {
  std::vector<std::string> parts;
  for (const char* at = list; at != nullptr && *at != '\0';) {
    const char* end = std::strchr(at, ':');
    const size_t length = end != nullptr ? static_cast<size_t>(end - at) : std::strlen(at);
    if (length > 0) parts.emplace_back(at, length);
    at = end != nullptr ? end + 1 : nullptr;
  }
  return parts;
}

/** Where the library may be, by falling right; what is no file is tried and told. */
std::vector<std::string> candidates(const std::string& name) {
  const std::string file = "libtessera-" + name + ".so";
  std::vector<std::string> all;
  const std::string own = own_folder();
  if (!own.empty()) all.push_back(own + "/" + file);
  // As @tessera/core reads it: absolute folders and files. One that is named after another back end is for that one.
  for (const std::string& entry : split(std::getenv("TESSERA_BACKEND_PATH"))) {
    const std::string base = entry.substr(entry.rfind('/') + 1);
    if (entry[0] != '/') {
      tell(entry + " in TESSERA_BACKEND_PATH is refused: it isn't absolute");
      continue;
    }
    const bool is_file = base.size() > 3 && base.compare(base.size() - 3, 3, ".so") == 0;
    if (!is_file) all.push_back(entry + "/" + file);
    if (base == file) all.push_back(entry);
  }
  // What enableTessera() found: node_modules of pnpm show a package nobody's dependencies but its own.
  for (const std::string& entry : split(std::getenv("TESSERA_GGML_ENGINES"))) {
    if (entry[0] == '/') all.push_back(entry + "/" + file);
  }
  char here[PATH_MAX];
  const std::string working = getcwd(here, sizeof here) != nullptr ? here : "";
  for (const std::string& start : {own, working}) {
    for (std::string at = start; !at.empty(); at = parent(at)) {
      const std::string scope = at + "/node_modules/@tessera/" + name;
      if (exists(scope + "-" + kPlatform)) all.push_back(scope + "-" + kPlatform + "/" + file);
      if (exists(scope + "/lib")) all.push_back(scope + "/lib/" + file);
    }
  }
  return all;
}

}  // namespace

Engine* Engine::open(const std::string& name, std::string* why) {
  std::string tried;
  for (const std::string& path : candidates(name)) {
    tried += (tried.empty() ? "" : ", ") + path;
    if (!exists(path)) continue;
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
      *why = std::string("can't open the engine: ") + dlerror();
      return nullptr;
    }
    const auto entry = reinterpret_cast<tsr_backend_entry_fn>(dlsym(library, "tsr_backend_entry"));
    const tsr_backend* table = entry != nullptr ? entry(TSR_ABI_VERSION) : nullptr;
    if (table == nullptr) {
      *why = path + " doesn't speak version " + std::to_string(TSR_ABI_VERSION) + " of the engine's contract";
      return nullptr;
    }
    tsr_probe_result probe = {};
    probe.struct_size = sizeof probe;
    table->probe(&probe);
    if (probe.state != TSR_PROBE_USABLE) {
      *why = "the engine in " + path + " can't be used: " + probe.reason;
      return nullptr;
    }
    auto* engine = new Engine;  // never destroyed, as its library is never unloaded
    engine->table_ = table;
    engine->path_ = path;
    engine->device_count_ = probe.device_count;
    return engine;
  }
  *why = "no libtessera-" + name + ".so (tried " + tried +
         "); set TESSERA_BACKEND_PATH to the absolute path of the folder that has it";
  return nullptr;
}

tsr_context* Engine::context(int device, int threads, std::string* why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  tsr_context*& context = contexts_[{device, threads}];
  if (context != nullptr) return context;
  tsr_context_desc desc = {};
  desc.struct_size = sizeof desc;
  desc.device = device;
  desc.threads = threads;
  if (table_->context_create(&desc, &context) != TSR_OK) {
    context = nullptr;
    *why = table_->last_error(nullptr);
  }
  return context;
}

Scratch::~Scratch() { std::free(data_); }

void* Scratch::at_least(size_t bytes) {
  if (bytes <= bytes_ && data_ != nullptr) return data_;
  std::free(data_);
  const size_t rounded = (bytes + 63) / 64 * 64 + 64;
  data_ = std::aligned_alloc(64, rounded);
  bytes_ = data_ != nullptr ? rounded : 0;
  return data_;
}

}  // namespace tsr::ggml
