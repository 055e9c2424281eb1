#include "tessera/common/error.h"

#include <atomic>
#include <cstring>
#include <exception>
#include <new>

namespace tsr {
namespace {

struct Entry {
  bool used;
  ErrorKey key;
  uint64_t age;
  char text[2048];
};

// Zero-initialised and trivially destructible: no guard, no destructor at thread or process exit.
thread_local Entry entries[8];
thread_local uint64_t clock_now;

std::atomic<ErrorKey> next_key{1};

}  // namespace

ErrorKey new_error_key() { return next_key.fetch_add(1, std::memory_order_relaxed); }

void set_last_error(ErrorKey key, const char* text) {
  Entry* slot = &entries[0];
  for (Entry& entry : entries) {
    if (entry.used && entry.key == key) {
      slot = &entry;
      break;
    }
    if (entry.age < slot->age) slot = &entry;
  }
  slot->used = true;
  slot->key = key;
  slot->age = ++clock_now;
  std::strncpy(slot->text, text, sizeof slot->text - 1);
  slot->text[sizeof slot->text - 1] = '\0';
}

const char* last_error(ErrorKey key) {
  for (const Entry& entry : entries) {
    if (entry.used && entry.key == key) return entry.text;
  }
  return "";
}

tsr_status status_of_exception(ErrorKey key) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    set_last_error(key, "out of host memory");
    return TSR_OUT_OF_MEMORY;
  } catch (const std::exception& e) {
    set_last_error(key, e.what());
    return TSR_INTERNAL;
  } catch (...) {
    set_last_error(key, "unknown exception");
    return TSR_INTERNAL;
  }
}

}  // namespace tsr
