// The kernels as they are embedded: for each architecture of the build a code object, out of code_objects.cpp.in.
#pragma once

namespace tsr::hip::host {

struct CodeObject {
  const char* architecture;  ///< "gfx942"
  const char* source;        ///< "kernels.hip"
  const char* image;
};

struct CodeObjects {
  const CodeObject* first;
  const CodeObject* last;
  const CodeObject* begin() const { return first; }
  const CodeObject* end() const { return last; }
};
CodeObjects code_objects();

}  // namespace tsr::hip::host
