// Loading of back-end libraries. Process-wide: a library is opened once, whichever thread asks first, and stays.
#pragma once
#include <string>

#include "tessera/tessera.h"

namespace tessera {

struct LoadedLibrary {
  std::string path;
  const tsr_backend* table;
};

/** @throws LoadFailure */
const LoadedLibrary& loadLibrary(const std::string& path);

/** Keeps the addon itself in memory when the last environment that loaded it ends: its threads may outlive that. */
void pinAddon();

}  // namespace tessera
