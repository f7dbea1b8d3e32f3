#include "pipeline/layout/row_bucket.h"

#include <algorithm>

#include "runtime/check.h"

namespace hadal {

int64_t BucketRows(int64_t rows, int64_t capacity, int64_t least) {
  HADAL_CHECK_LE(rows, capacity);
  HADAL_CHECK_GE(least, 1);
  constexpr int64_t kBuckets = 8, kMultiple = 8;  // 16 bytes of bf16
  const int64_t eighth = (capacity + kBuckets - 1) / kBuckets;
  const int64_t step = std::max((eighth + kMultiple - 1) / kMultiple * kMultiple, least);
  return std::min((rows + step - 1) / step * step, capacity);
}

void PadToBuckets(const PackedBatch& batch, const ActivationCapacity& capacity, int64_t least, PackedBatch& to) {
  to = batch;
  to.source.resize(BucketRows(batch.source_rows(), capacity.source_rows, least), kPaddingRow);
  const int64_t target_rows = BucketRows(batch.target_rows(), capacity.target_rows, least);
  to.target_input.resize(target_rows, kPaddingRow);
  to.target.resize(target_rows, kPaddingRow);
}

}  // namespace hadal
