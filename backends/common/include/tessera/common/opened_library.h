// Where a library lies that dlopen() opened by name: whoever finds less in it than there should be wants to know which it was.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <string>

#include "tessera/common/text.h"

namespace tsr {

/// The file, as the loader found it; `name` if it doesn't say.
inline std::string path_of_library(void* library, const char* name) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name == nullptr || map->l_name[0] == '\0')
    return name;
  return map->l_name;
}

/// The entry of a search path (LD_LIBRARY_PATH, say; NULL: none) in which `file` lies; empty if none is.
inline std::string entry_with(const char* search_path, const std::string& file) {
  const size_t slash = file.rfind('/');
  if (search_path == nullptr || slash == std::string::npos) return "";
  const std::string folder = file.substr(0, slash), all = search_path;
  for (size_t at = 0; at <= all.size();) {
    size_t end = all.find_first_of(":;", at);
    if (end == std::string::npos) end = all.size();
    std::string entry = all.substr(at, end - at);
    while (entry.size() > 1 && entry.back() == '/') entry.pop_back();
    if (!entry.empty() && entry == folder) return entry;
    at = end + 1;
  }
  return "";
}

/// What to do about `file`, a library of the right name without all that belongs into it; `usual`: what else helps.
inline std::string fix_of_incomplete(const std::string& file, const std::string& usual) {
  const std::string entry = entry_with(std::getenv("LD_LIBRARY_PATH"), file);
  if (entry.empty()) return usual;
  return text("take ", entry, " out of LD_LIBRARY_PATH, where that file was found; or ", usual);
}

}  // namespace tsr
