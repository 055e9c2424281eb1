#include "device_mask.h"

#include "cuda_driver.h"

namespace tsr::ggml {

namespace {

/** What the kernel knows of a row; all zeros: nothing is visible. */
struct Row {
  /** Keys from the first visible one on, and up to the last. */
  uint32_t from_first, to_last;
  /** Bits of all visible cells but their signs, and the number of these cells. */
  uint32_t bits, count;
};

constexpr unsigned kWarps = 4, kCellsPerWarp = 512;

/**
 * A warp reads kCellsPerWarp cells of a row: grid.x counts rows, grid.y pieces of kWarps * kCellsPerWarp cells. By hand, as a
 * plug-in that is built without a CUDA compiler has it, too; any driver compiles it for its device.
 */
const char* const kRows = R"(
.version 7.0
.target sm_80
.address_size 64

.visible .entry tessera_mask_rows(
  .param .u64 p_cells, .param .u64 p_rows, .param .u32 p_keys, .param .u32 p_queries, .param .u32 p_heads,
  .param .u64 p_query_stride, .param .u64 p_head_stride, .param .u64 p_batch_stride)
{
  .reg .pred %p;
  .reg .b16 %cell16;
  .reg .b32 %row, %rest, %query, %head, %batch, %keys, %size, %lane, %j, %end, %cell, %x;
  .reg .b32 %first, %last, %bits, %count;
  .reg .b64 %cells, %rows, %stride, %at;

  mov.u32 %row, %ctaid.x;
  ld.param.u32 %size, [p_queries];
  rem.u32 %query, %row, %size;
  div.u32 %rest, %row, %size;
  ld.param.u32 %size, [p_heads];
  rem.u32 %head, %rest, %size;
  div.u32 %batch, %rest, %size;
  ld.param.u64 %cells, [p_cells];
  cvta.to.global.u64 %cells, %cells;
  ld.param.u64 %stride, [p_query_stride];
  cvt.u64.u32 %at, %query;
  mad.lo.u64 %cells, %at, %stride, %cells;
  ld.param.u64 %stride, [p_head_stride];
  cvt.u64.u32 %at, %head;
  mad.lo.u64 %cells, %at, %stride, %cells;
  ld.param.u64 %stride, [p_batch_stride];
  cvt.u64.u32 %at, %batch;
  mad.lo.u64 %cells, %at, %stride, %cells;

  mov.u32 %lane, %tid.x;
  mov.u32 %j, %ctaid.y;
  shl.b32 %j, %j, 2;
  shr.u32 %x, %lane, 5;
  add.u32 %j, %j, %x;
  shl.b32 %j, %j, 9;
  and.b32 %lane, %lane, 31;
  ld.param.u32 %keys, [p_keys];
  add.u32 %end, %j, 512;
  min.u32 %end, %end, %keys;
  add.u32 %j, %j, %lane;
  mov.u32 %first, 0;
  mov.u32 %last, 0;
  mov.u32 %bits, 0;
  mov.u32 %count, 0;
next:
  setp.ge.u32 %p, %j, %end;
  @%p bra all;
  mul.wide.u32 %at, %j, 2;
  add.u64 %at, %cells, %at;
  ld.global.u16 %cell16, [%at];
  cvt.u32.u16 %cell, %cell16;
  setp.eq.u32 %p, %cell, 0xfc00;
  @%p bra hidden;
  sub.u32 %x, %keys, %j;
  max.u32 %first, %first, %x;
  add.u32 %x, %j, 1;
  max.u32 %last, %last, %x;
  and.b32 %x, %cell, 0x7fff;
  or.b32 %bits, %bits, %x;
  add.u32 %count, %count, 1;
hidden:
  add.u32 %j, %j, 32;
  bra next;
all:
  bar.warp.sync 0xffffffff;
  redux.sync.max.u32 %first, %first, 0xffffffff;
  redux.sync.max.u32 %last, %last, 0xffffffff;
  redux.sync.or.b32 %bits, %bits, 0xffffffff;
  redux.sync.add.u32 %count, %count, 0xffffffff;
  setp.ne.u32 %p, %lane, 0;
  @%p bra end;
  setp.eq.u32 %p, %count, 0;
  @%p bra end;
  ld.param.u64 %rows, [p_rows];
  cvta.to.global.u64 %rows, %rows;
  mul.wide.u32 %at, %row, 16;
  add.u64 %rows, %rows, %at;
  red.global.max.u32 [%rows], %first;
  red.global.max.u32 [%rows+4], %last;
  red.global.or.b32 [%rows+8], %bits;
  red.global.add.u32 [%rows+12], %count;
end:
  ret;
}
)";

MaskRow known(const Row& row, int64_t keys) {
  if (row.count == 0) return {0, -1, true};
  const int64_t first = keys - row.from_first, last = static_cast<int64_t>(row.to_last) - 1;
  return {first, last, row.bits == 0 && row.count == last - first + 1};
}

}  // namespace

DeviceMask::~DeviceMask() {
  const CurrentContext current(table_.stream_native(context_, nullptr));
  if (current.error() != 0) return;
  if (host_ != nullptr) driver.free_host(host_);
  if (module_ != nullptr) driver.unload_module(module_);
}

int DeviceMask::launch(const AttentionOp& op, size_t count, void* rows, void* stream) {
  if (module_ == nullptr) {
    const int error = driver.load_module(&module_, kRows);
    if (error != 0) return error;
  }
  if (function_ == nullptr) {
    const int missing = driver.find_function(&function_, module_, "tessera_mask_rows");
    if (missing != 0) return missing;
  }
  const ggml_tensor* mask = op.mask;
  void* cells = mask->data;
  auto keys = static_cast<uint32_t>(op.keys), queries = static_cast<uint32_t>(op.queries);
  auto heads = static_cast<uint32_t>(mask->ne[2]);
  uint64_t strides[] = {mask->nb[1], mask->nb[2], mask->nb[3]};
  void* parameters[] = {&cells, &rows, &keys, &queries, &heads, &strides[0], &strides[1], &strides[2]};
  constexpr unsigned piece = kWarps * kCellsPerWarp;
  return driver.launch(function_, static_cast<unsigned>(count), (keys + piece - 1) / piece, 1, kWarps * 32, 1, 1, 0,
                       stream, parameters, nullptr);
}

/** To host_. */
tsr_status DeviceMask::read_rows(const AttentionOp& op, size_t count, std::string* why) {
  const uint64_t bytes = count * sizeof(Row);
  void* rows = nullptr;
  tsr_status status = rows_.at_least(bytes, &rows);
  if (status == TSR_OK) status = table_.fill(context_, nullptr, rows, 0, bytes);
  if (status != TSR_OK) return status;
  {
    void* stream = table_.stream_native(context_, nullptr);
    const CurrentContext current(stream);
    int error = current.error();
    if (error == 0 && host_bytes_ < bytes) {
      if (host_ != nullptr) driver.free_host(host_);
      host_ = nullptr;
      error = driver.allocate_host(&host_, bytes);
      host_bytes_ = error == 0 ? bytes : 0;
    }
    if (error == 0) error = launch(op, count, rows, stream);
    if (error != 0) {
      *why = "the mask can't be read on the device: the driver's error " + std::to_string(error);
      return TSR_DEVICE_ERROR;
    }
  }
  status = table_.copy(context_, nullptr, host_, rows, bytes, TSR_COPY_DEVICE_TO_HOST);
  return status == TSR_OK ? table_.stream_synchronize(context_, nullptr) : status;
}

tsr_status DeviceMask::read(const AttentionOp& op, std::vector<MaskShape>* shapes, std::string* why) {
  const ggml_tensor* mask = op.mask;
  const int64_t per_batch = mask->ne[2] * op.queries;
  const auto count = static_cast<size_t>(per_batch * mask->ne[3]);
  const tsr_status status = read_rows(op, count, why);
  if (status != TSR_OK) return status;
  std::vector<MaskRow> rows;
  rows.reserve(count);
  for (size_t i = 0; i < count; i++) rows.push_back(known(static_cast<const Row*>(host_)[i], op.keys));
  shapes->clear();
  for (int64_t b = 0; b < op.batches; b++) {
    shapes->push_back(shape_of(rows.data() + (b % mask->ne[3]) * per_batch, mask->ne[2], op.queries));
  }
  return TSR_OK;
}

}  // namespace tsr::ggml
