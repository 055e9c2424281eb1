// Of a library that was opened by name: which file it is, and which entry of a search path it came from.
#include "tessera/common/opened_library.h"

#include "count.h"

using tsr::entry_with;
using tsr::fix_of_incomplete;
using tsr::path_of_library;

int main() {
  void* const library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
  CHECK(library != nullptr);
  const std::string file = path_of_library(library, "libm.so.6");
  CHECK(file[0] == '/' && file.size() > 10 && file.substr(file.size() - 10) == "/libm.so.6");

  CHECK(entry_with("/a:/opt/vendor:/b", "/opt/vendor/libcuda.so.1") == "/opt/vendor");
  CHECK(entry_with("/opt/vendor/", "/opt/vendor/libcuda.so.1") == "/opt/vendor");
  CHECK(entry_with("/a;/opt/vendor", "/opt/vendor/libcuda.so.1") == "/opt/vendor");
  CHECK(entry_with("/opt/vendor", "/opt/vendor/more/libcuda.so.1") == "");
  CHECK(entry_with("/opt:/opt/vendo::", "/opt/vendor/libcuda.so.1") == "");
  CHECK(entry_with("", "/opt/vendor/libcuda.so.1") == "" && entry_with(nullptr, "/lib/x.so") == "");
  CHECK(entry_with(":", "libcuda.so.1") == "" && entry_with(":", "/libcuda.so.1") == "");

  setenv("LD_LIBRARY_PATH", "/usr/lib:/opt/vendor", 1);
  CHECK(fix_of_incomplete("/opt/vendor/libcuda.so.1", "install the driver") ==
        "take /opt/vendor out of LD_LIBRARY_PATH, where that file was found; or install the driver");
  CHECK(fix_of_incomplete("/lib/libcuda.so.1", "install the driver") == "install the driver");
  unsetenv("LD_LIBRARY_PATH");
  CHECK(fix_of_incomplete("/opt/vendor/libcuda.so.1", "install the driver") == "install the driver");
  return tsr::check::finish();
}
