// Why a library can't be used; the names are those of ProbeState and TesseraErrorCode in TypeScript.
#pragma once
#include <string>

namespace tessera {

struct LoadFailure {
  const char* state;
  const char* code;
  std::string text;
};

inline LoadFailure notAbsolute(const std::string& path) {
  return {"load-failed", "invalid-argument", "the path of a library must be absolute, got \"" + path + "\""};
}

inline LoadFailure unusable(const std::string& path, const std::string& why) {
  return {"load-failed", "backend-missing", path + " " + why};
}

}  // namespace tessera
