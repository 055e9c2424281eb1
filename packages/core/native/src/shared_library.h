// What opening a library needs of the operating system: one implementation per family, each whole in its file.
#pragma once
#include <string>

namespace tessera::shared_library {

/** The one true path of the file behind `path`. @throws LoadFailure: not absolute, not there, not a file */
std::string realPath(const std::string& path);

/** Opens the library for good, every symbol bound and none given to others. @throws LoadFailure with the system's reason */
void* open(const std::string& path);

/** Null if the library has none of that name. */
void* symbol(void* library, const char* name);

/** Keeps the library that `address` is in until the process ends. */
void pin(const void* address);

}  // namespace tessera::shared_library
