#ifndef _WIN32
#include <dlfcn.h>
#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "load_failure.h"
#include "shared_library.h"

namespace tessera::shared_library {

std::string realPath(const std::string& path) {
  if (path.empty() || path[0] != '/') throw notAbsolute(path);
  char resolved[PATH_MAX];
  if (!realpath(path.c_str(), resolved)) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) throw unusable(path, "does not exist");
    throw unusable(path, std::string("can't be read: ") + std::strerror(error));
  }
  struct stat info{};
  if (stat(resolved, &info) != 0 || !S_ISREG(info.st_mode)) throw unusable(path, "is not a file");
  return resolved;
}

void* open(const std::string& path) {
  dlerror();
  if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  const char* text = dlerror();
  throw unusable(path, std::string("can't be loaded: ") + (text ? text : "dlopen gives no reason"));
}

void* symbol(void* library, const char* name) { return dlsym(library, name); }

void pin(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) && info.dli_fname) dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

}  // namespace tessera::shared_library
#endif
