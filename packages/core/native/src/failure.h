// A call that failed, between the layers of the addon: the contract's status and the text a user reads.
#pragma once
#include <string>
#include <utility>

#include "tessera/tessera.h"

namespace tessera {

struct Failure {
  tsr_status status;
  std::string text;
};

[[noreturn]] inline void fail(tsr_status status, std::string text) { throw Failure{status, std::move(text)}; }

}  // namespace tessera
