// The contract alone has to compile as C++17.
#include "tessera/tessera.h"

static_assert(sizeof(tsr_tensor) == 96, "the same layout as in C");
static_assert(sizeof(tsr_status) == 4, "fixed-width");
