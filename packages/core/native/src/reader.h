// Reads a call that JavaScript packed into numbers (src/native/pack.ts is the other half: change both together).
//
// A tensor is 0 if absent, else [kind, handle, byteOffset, dtype, rank, shape.., strides..]: kind 1 is a buffer and
// handle its id, kind 2 is an element of the array of host views. Nothing here trusts a number.
#pragma once
#include <napi.h>

#include <memory>
#include <string>
#include <unordered_map>

#include "arguments.h"

namespace tessera {

using Buffers = std::unordered_map<uint64_t, std::shared_ptr<Buffer>>;

struct Bytes {
  uint8_t* data;
  uint64_t size;
};

/** The memory of a TypedArray or DataView; throws Failure for anything else. */
Bytes bytesOfView(napi_env env, napi_value view, const char* name);

/** A number of JavaScript that must be a whole one of at least 0. */
uint64_t wholeNumber(double value, const char* name);

class Reader {
 public:
  Reader(napi_env env, const double* slots, size_t count, napi_value hostViews, const Buffers& buffers, bool hostMemory,
         Arguments& into);

  /** For `supports` and `explain`: an empty typed array stands for memory that isn't there yet (NULL data). */
  void shapesOnly() { shapesOnly_ = true; }

  void attention();
  void append();
  void decode();
  void merge();

 private:
  double number();
  int64_t integer(const char* name);
  int32_t smallInteger(const char* name);
  const tsr_tensor* tensor(const char* name);
  const tsr_tensor* required(const char* name);
  void reserve(size_t tensors);
  void locate(const char* name, double kind, double handle, tsr_tensor& tensor, bool empty);
  void readAttention();
  void readAppend();

  napi_env env_;
  const double* next_;
  const double* end_;
  napi_value hostViews_;
  const Buffers& buffers_;
  bool hostMemory_;
  bool shapesOnly_ = false;
  Arguments& into_;
};

}  // namespace tessera
