#include "loader.h"

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "exit_guard.h"
#include "load_failure.h"
#include "shared_library.h"

namespace tessera {
namespace {

// Opened once; after a failure the next caller tries again, as the file may have been mended. (Not std::call_once: it
// hangs on some C libraries when the function throws.)
struct Entry {
  std::mutex mutex;
  std::optional<LoadedLibrary> library;
};

struct Table {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<Entry>> entries;
};

Table& table() {
  static Table* const t = new Table;
  return *t;
}

constexpr uint32_t kOurs = TSR_ABI_VERSION;

[[noreturn]] void abiMismatch(const std::string& path, const std::string& theirs) {
  throw LoadFailure{"abi-mismatch", "abi-mismatch",
                    path + " speaks version " + theirs +
                        " of the contract (tessera.h), this @tessera/core speaks version " + std::to_string(kOurs) +
                        ": install versions of both that belong together"};
}

// A back end says what it doesn't speak by NULL; asking for other versions finds the one that it does.
std::string versionSpokenBy(tsr_backend_entry_fn entry) {
  for (uint32_t version = 0; version <= 64; version++) {
    if (version == kOurs) continue;
    if (const tsr_backend* other = entry(version)) return std::to_string(other->abi_version);
  }
  return "(none up to 64)";
}

[[noreturn]] void notABackend(const std::string& why) { throw LoadFailure{"not-a-backend", "backend-missing", why}; }

// Every member after `version` is a function; a table with a hole would crash the first caller.
void requireFunctions(const std::string& path, const tsr_backend* backend) {
  constexpr size_t first = offsetof(tsr_backend, probe);
  const char* bytes = reinterpret_cast<const char*>(backend);
  for (size_t at = first; at < sizeof(tsr_backend); at += sizeof(void*)) {
    void* function = nullptr;
    std::memcpy(&function, bytes + at, sizeof function);
    if (!function) {
      notABackend(path + " is not a usable Tessera back end: function " + std::to_string((at - first) / sizeof(void*)) +
                  " of its table is NULL");
    }
  }
  if (!backend->name || !*backend->name || !backend->version || !*backend->version) {
    notABackend(path + " is not a usable Tessera back end: its table has no name or no version");
  }
}

LoadedLibrary open(const std::string& path) {
  void* handle = shared_library::open(path);
  exit_guard::arm();
  // From here on the handle is kept, also after a failure: code that has run may have left threads behind.
  auto entry = reinterpret_cast<tsr_backend_entry_fn>(shared_library::symbol(handle, "tsr_backend_entry"));
  if (!entry) notABackend(path + " is not a Tessera back end: it has no symbol tsr_backend_entry");
  const tsr_backend* backend = entry(kOurs);
  if (!backend) abiMismatch(path, versionSpokenBy(entry));
  if (backend->struct_size < offsetof(tsr_backend, name)) {
    notABackend(path + " is not a usable Tessera back end: its table is " + std::to_string(backend->struct_size) +
                " bytes; version " + std::to_string(kOurs) + " of the contract has " +
                std::to_string(sizeof(tsr_backend)));
  }
  if (backend->abi_version != kOurs) abiMismatch(path, std::to_string(backend->abi_version));
  if (backend->struct_size < sizeof(tsr_backend)) {
    notABackend(path + " is not a usable Tessera back end: its table is too short, " +
                std::to_string(backend->struct_size) + " bytes; version " + std::to_string(kOurs) +
                " of the contract has " + std::to_string(sizeof(tsr_backend)));
  }
  requireFunctions(path, backend);
  return {path, backend};
}

}  // namespace

const LoadedLibrary& loadLibrary(const std::string& path) {
  const std::string real = shared_library::realPath(path);
  Entry* entry = nullptr;
  {
    std::lock_guard<std::mutex> lock(table().mutex);
    std::unique_ptr<Entry>& slot = table().entries[real];
    if (!slot) slot = std::make_unique<Entry>();
    entry = slot.get();
  }
  std::lock_guard<std::mutex> lock(entry->mutex);
  if (!entry->library) entry->library = open(real);
  return *entry->library;
}

void pinAddon() { shared_library::pin(reinterpret_cast<const void*>(&pinAddon)); }

}  // namespace tessera
