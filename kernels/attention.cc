#include "kernels/attention.h"

#include "kernels/cpu/attention_work.h"
#include "kernels/cpu/operations.h"
#include "kernels/device_kernels.h"
#include "runtime/check.h"

namespace hadal {
namespace {

// Checks that offsets divide rows [0, rows) into ascending ranges; with tiles on the device, padding rows may follow.
void CheckOffsets(const ConstTokens& offsets, int64_t rows, const DeviceTiles& device_tiles) {
  HADAL_CHECK_GE(offsets.size, 1);
  HADAL_CHECK_EQ(offsets[0], 0);
  for (int64_t n = 0; n + 1 < offsets.size; ++n) HADAL_CHECK_LE(offsets[n], offsets[n + 1]);
  const int64_t last = offsets[offsets.size - 1];
  HADAL_CHECK(last == rows || (device_tiles.queries != nullptr && last < rows));
}

void CheckShape(const AttentionShape& shape, int64_t query_rows, int64_t key_rows, int64_t columns) {
  HADAL_CHECK_GE(shape.heads, 1);
  HADAL_CHECK_EQ(columns % shape.heads, 0);
  HADAL_CHECK_EQ(shape.heads % shape.group, 0);
  HADAL_CHECK_GE(columns, shape.heads);
  CheckOffsets(shape.query_offsets, query_rows, shape.device_tiles);
  CheckOffsets(shape.key_offsets, key_rows, shape.device_tiles);
  HADAL_CHECK_EQ(shape.query_offsets.size, shape.key_offsets.size);
  if (shape.rotary.active()) {
    HADAL_CHECK_LE(2 * shape.rotary.half(), columns / shape.heads);
    HADAL_CHECK_LE(cpu::MaxLength(shape), shape.rotary.table.rows);
  }
  HADAL_CHECK_GE(shape.reach, 0);
  if (!shape.causal && shape.reach == kWholeSentence) return;
  for (int64_t n = 0; n < shape.query_offsets.size; ++n) HADAL_CHECK_EQ(shape.query_offsets[n], shape.key_offsets[n]);
}

void CheckMatrix(const ConstAnyMatrix& matrix, int64_t rows, int64_t columns) {
  HADAL_CHECK_EQ(matrix.rows, rows);
  HADAL_CHECK_EQ(matrix.columns, columns);
  HADAL_CHECK_GE(matrix.stride, columns);
}

// Dropout counters have 32 bits for (query row, head) and 16 for the key (random.h).
void CheckDropout(const Dropout& dropout, const AttentionShape& shape, int64_t query_rows) {
  if (!dropout.active()) return;
  HADAL_CHECK_LT(dropout.threshold, 65536u);
  HADAL_CHECK_LE(query_rows * shape.heads, int64_t{1} << 32);
  HADAL_CHECK_LE(cpu::MaxLength(shape), 65536);
}

AttentionCapacity CapacityOf(const AttentionShape& shape, const ConstAnyMatrix& q) {
  return {.query_rows = q.rows,
          .max_length = cpu::MaxLength(shape),
          .heads = shape.heads,
          .head_width = q.columns / shape.heads};
}

// Checks of both directions.
template <typename Args>
void CheckShared(const Stream& stream, const Args& args) {
  CheckShape(args.shape, args.q.rows, args.k.rows, args.q.columns);
  CheckMatrix(args.q, args.q.rows, args.q.columns);
  CheckMatrix(args.k, args.k.rows, args.q.columns / args.shape.group);
  CheckMatrix(args.v, args.k.rows, args.q.columns / args.shape.group);
  CheckMatrix(args.log_sum_exp, args.q.rows, args.shape.heads);
  CheckDropout(args.dropout, args.shape, args.q.rows);
  HADAL_CHECK_GE(args.scratch.size, AttentionScratch(stream, CapacityOf(args.shape, args.q)));
}

}  // namespace

void AttentionForward(const Stream& stream, const AttentionForwardArgs& args) {
  CheckShared(stream, args);
  CheckMatrix(args.output, args.q.rows, args.q.columns);
  RunKernel(stream, &DeviceKernels::attention_forward, cpu::AttentionForward, args);
}

void AttentionBackward(const Stream& stream, const AttentionBackwardArgs& args) {
  CheckShared(stream, args);
  CheckMatrix(args.d_output, args.q.rows, args.q.columns);
  CheckMatrix(args.d_q, args.q.rows, args.q.columns);
  CheckMatrix(args.d_k, args.k.rows, args.k.columns);
  CheckMatrix(args.d_v, args.k.rows, args.k.columns);
  RunKernel(stream, &DeviceKernels::attention_backward, cpu::AttentionBackward, args);
}

int64_t AttentionScratch(const Stream& stream, const AttentionCapacity& capacity) {
  if (stream.kind() != DeviceKind::kCpu) return 2 * capacity.heads * capacity.query_rows;
  return stream.threads() *
         cpu::ThreadScratchFloats(cpu::AttentionScratchLayout(capacity.max_length, capacity.head_width));
}

}  // namespace hadal
