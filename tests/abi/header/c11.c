/* The contract alone has to compile as C11, and to say what other languages rely on. */
#include "tessera/tessera.h"

#include <stddef.h>

_Static_assert(sizeof(tsr_status) == 4 && sizeof(tsr_dtype) == 4, "scalars are fixed-width");
_Static_assert(offsetof(tsr_tensor, struct_size) == 0, "a struct begins with its size");
_Static_assert(offsetof(tsr_attention_desc, struct_size) == 0, "a struct begins with its size");
_Static_assert(offsetof(tsr_append_desc, struct_size) == 0, "a struct begins with its size");
_Static_assert(offsetof(tsr_backend, struct_size) == 0, "the table begins with its size");
_Static_assert(sizeof(tsr_tensor) == 96, "no padding that compilers could disagree about");
_Static_assert(sizeof(tsr_rejection) == TSR_NAME + TSR_TEXT, "an array of these has no size of its own");
