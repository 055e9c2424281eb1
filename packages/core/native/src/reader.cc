#include "reader.h"

namespace tessera {
namespace {

constexpr double kLargest = 9007199254740991.0;  // 2^53 - 1
constexpr size_t kAttentionTensors = 18;
constexpr size_t kAppendTensors = 13;

std::string text(double value) {
  char buffer[32];
  snprintf(buffer, sizeof buffer, "%.17g", value);
  return buffer;
}

size_t elementSize(napi_typedarray_type type) {
  switch (type) {
    case napi_int8_array:
    case napi_uint8_array:
    case napi_uint8_clamped_array:
      return 1;
    case napi_int16_array:
    case napi_uint16_array:
      return 2;
    case napi_int32_array:
    case napi_uint32_array:
    case napi_float32_array:
      return 4;
    case napi_float64_array:
    case napi_bigint64_array:
    case napi_biguint64_array:
      return 8;
    default:
      return 2;  // Float16Array, of Node 24 and later
  }
}

}  // namespace

Bytes bytesOfView(napi_env env, napi_value view, const char* name) {
  void* data = nullptr;
  size_t length = 0;
  bool is = false;
  if (view && napi_is_typedarray(env, view, &is) == napi_ok && is) {
    napi_typedarray_type type;
    if (napi_get_typedarray_info(env, view, &type, &length, &data, nullptr, nullptr) == napi_ok) {
      return {static_cast<uint8_t*>(data), length * elementSize(type)};
    }
  }
  if (view && napi_is_dataview(env, view, &is) == napi_ok && is) {
    if (napi_get_dataview_info(env, view, &length, &data, nullptr, nullptr) == napi_ok) {
      return {static_cast<uint8_t*>(data), length};
    }
  }
  fail(TSR_INVALID_ARGUMENT, std::string(name) + ": expected a buffer of this context or a typed array");
}

uint64_t wholeNumber(double value, const char* name) {
  if (!(value >= 0 && value <= kLargest) || value != static_cast<double>(static_cast<int64_t>(value))) {
    fail(TSR_INVALID_ARGUMENT, std::string(name) + " is " + text(value) + ": expected an integer from 0 to 2^53");
  }
  return static_cast<uint64_t>(value);
}

Reader::Reader(napi_env env, const double* slots, size_t count, napi_value hostViews, const Buffers& buffers,
               bool hostMemory, Arguments& into)
    : env_(env),
      next_(slots),
      end_(slots + count),
      hostViews_(hostViews),
      buffers_(buffers),
      hostMemory_(hostMemory),
      into_(into) {}

double Reader::number() {
  if (next_ == end_) fail(TSR_INVALID_ARGUMENT, "the packed call is too short");
  return *next_++;
}

int64_t Reader::integer(const char* name) {
  const double value = number();
  if (!(value >= -kLargest && value <= kLargest) || value != static_cast<double>(static_cast<int64_t>(value))) {
    fail(TSR_INVALID_ARGUMENT, std::string(name) + " is " + text(value) + ": expected an integer of at most 2^53");
  }
  return static_cast<int64_t>(value);
}

int32_t Reader::smallInteger(const char* name) {
  const int64_t value = integer(name);
  if (value < INT32_MIN || value > INT32_MAX) {
    fail(TSR_INVALID_ARGUMENT, std::string(name) + " is " + std::to_string(value) + ": expected a 32-bit integer");
  }
  return static_cast<int32_t>(value);
}

void Reader::reserve(size_t tensors) {
  into_.tensors.reserve(tensors);
  if (into_.keeps) into_.keep.reserve(tensors);
}

const tsr_tensor* Reader::tensor(const char* name) {
  const double kind = number();
  if (kind == 0) return nullptr;
  tsr_tensor& tensor = into_.tensors.emplace_back();
  tensor.struct_size = sizeof tensor;
  const double handle = number();
  const int64_t offset = integer(name);
  tensor.dtype = smallInteger(name);
  tensor.rank = smallInteger(name);
  if (tensor.rank < 0 || tensor.rank > TSR_MAX_RANK) {
    fail(TSR_INVALID_ARGUMENT, std::string(name) + " has rank " + std::to_string(tensor.rank) + ": expected at most 4");
  }
  bool empty = false;
  for (int32_t d = 0; d < tensor.rank; d++) empty |= (tensor.shape[d] = integer(name)) == 0;
  for (int32_t d = 0; d < tensor.rank; d++) tensor.stride[d] = integer(name);

  locate(name, kind, handle, tensor, empty);
  const uint64_t size = tensor.bytes;
  if (offset < 0 || static_cast<uint64_t>(offset) > size) {
    fail(TSR_INVALID_ARGUMENT, std::string(name) + " starts at byte " + std::to_string(offset) + " of " +
                                   std::to_string(size) + ": expected a place inside");
  }
  // 0 would mean "don't check" to the back end.
  if (size - offset == 0 && !empty && !(shapesOnly_ && !tensor.data)) {
    fail(TSR_INVALID_ARGUMENT, std::string(name) + " has elements but no memory: byte " + std::to_string(offset) +
                                   " of " + std::to_string(size));
  }
  tensor.bytes = size - offset;
  if (tensor.data) tensor.data = static_cast<uint8_t*>(tensor.data) + offset;
  return &tensor;
}

// Sets data and bytes of the whole buffer or view.
void Reader::locate(const char* name, double kind, double handle, tsr_tensor& tensor, bool empty) {
  if (kind == 1) {
    auto found = buffers_.find(wholeNumber(handle, name));
    if (found == buffers_.end()) {
      fail(TSR_INVALID_ARGUMENT, std::string(name) + ": its buffer is disposed or of another context");
    }
    if (into_.keeps) into_.keep.push_back(found->second);
    tensor.data = found->second->data();
    tensor.bytes = found->second->bytes();
    return;
  }
  bool isArray = false;
  if (kind != 2 || !hostViews_ || napi_is_array(env_, hostViews_, &isArray) != napi_ok || !isArray) {
    fail(TSR_INVALID_ARGUMENT, std::string(name) + ": expected a buffer of this context or a typed array");
  }
  const uint64_t index = wholeNumber(handle, name);
  napi_value view = nullptr;
  if (index > UINT32_MAX || napi_get_element(env_, hostViews_, static_cast<uint32_t>(index), &view) != napi_ok) {
    fail(TSR_INVALID_ARGUMENT, std::string(name) + ": expected a typed array");
  }
  const Bytes bytes = bytesOfView(env_, view, name);
  if (shapesOnly_ && bytes.size == 0) return;
  if (!hostMemory_ && !empty) {
    fail(TSR_INVALID_ARGUMENT, std::string(name) +
                                   " is a host array, and this device can't read the host's memory: "
                                   "copy it to a buffer first");
  }
  tensor.data = bytes.data;
  tensor.bytes = bytes.size;
  into_.hostViews = true;
}

const tsr_tensor* Reader::required(const char* name) {
  const tsr_tensor* read = tensor(name);
  if (!read) fail(TSR_INVALID_ARGUMENT, std::string(name) + " is missing");
  return read;
}

void Reader::attention() {
  reserve(kAttentionTensors);
  readAttention();
}

void Reader::append() {
  reserve(kAppendTensors);
  readAppend();
}

void Reader::decode() {
  reserve(kAttentionTensors + kAppendTensors);
  into_.decode.struct_size = sizeof into_.decode;
  if (number() != 0) {
    readAppend();
    into_.decode.append = &into_.append;
  }
  readAttention();
  into_.decode.attention = &into_.attention;
}

void Reader::readAttention() {
  tsr_attention_desc& desc = into_.attention;
  desc.struct_size = sizeof desc;
  desc.present = static_cast<uint32_t>(smallInteger("present"));
  desc.scale = static_cast<float>(number());
  desc.softcap = static_cast<float>(number());
  desc.causal = smallInteger("causal");
  desc.align = smallInteger("align");
  desc.window_left = integer("window[0]");
  desc.window_right = integer("window[1]");
  desc.max_seqlen_q = integer("maxSeqLenQ");
  desc.max_seqlen_k = integer("maxSeqLenK");
  desc.num_splits = smallInteger("numSplits");
  desc.q = required("q");
  desc.k = required("k");
  desc.v = required("v");
  desc.out = required("out");
  desc.lse = tensor("lse");
  desc.query_offset = tensor("queryOffset");
  desc.alibi_slopes = tensor("alibiSlopes");
  desc.bias = tensor("bias");
  desc.mask = tensor("mask");
  desc.sinks = tensor("sinks");
  desc.seq_lens_q = tensor("seqLensQ");
  desc.seq_lens_k = tensor("seqLensK");
  desc.cu_seqlens_q = tensor("cuSeqLensQ");
  desc.cu_seqlens_k = tensor("cuSeqLensK");
  desc.page_table = tensor("pageTable");
  desc.k_scale = tensor("kScale");
  desc.v_scale = tensor("vScale");
  if (!into_.kernel.empty()) desc.kernel = into_.kernel.c_str();
}

void Reader::readAppend() {
  tsr_append_desc& desc = into_.append;
  desc.struct_size = sizeof desc;
  desc.flags = static_cast<uint32_t>(smallInteger("flags"));
  desc.k = required("k");
  desc.v = required("v");
  desc.q = tensor("q");
  desc.q_out = tensor("qOut");
  desc.cache_k = required("cacheK");
  desc.cache_v = required("cacheV");
  desc.page_table = tensor("pageTable");
  desc.lengths = required("lengths");
  desc.new_lens = tensor("newLens");
  desc.cu_seqlens = tensor("cuSeqLens");
  desc.k_scale = tensor("kScale");
  desc.v_scale = tensor("vScale");
  if (number() == 0) return;
  tsr_rope_desc& rope = into_.rope;
  rope.struct_size = sizeof rope;
  rope.pairing = smallInteger("rope.pairing");
  rope.theta = static_cast<float>(number());
  rope.scale = static_cast<float>(number());
  rope.dims = smallInteger("rope.dims");
  rope.positions = tensor("rope.positions");
  desc.rope = &rope;
}

void Reader::merge() {
  tsr_merge_desc& desc = into_.merge;
  desc.struct_size = sizeof desc;
  const int32_t count = smallInteger("count");
  if (count < 0 || count > end_ - next_) fail(TSR_INVALID_ARGUMENT, "the packed call is too short");
  reserve(2 * static_cast<size_t>(count) + 2);
  for (int32_t i = 0; i < count; i++) {
    into_.outs.push_back(required("outs"));
    into_.lses.push_back(required("lses"));
  }
  desc.count = count;
  desc.outs = into_.outs.data();
  desc.lses = into_.lses.data();
  desc.out = required("out");
  desc.lse = tensor("lse");
}

}  // namespace tessera
