// Memory for column sums (kernels/cuda/linear_epilogue.h) between their two stages: scratch for one matrix, or the
// memory of a GradientBatch for several.
#pragma once

#include <vector>

#include "kernels/cuda/linear_epilogue.h"
#include "kernels/cuda_host/launch_device.h"
#include "kernels/gradient_batch.h"

namespace hadal::cuda {

// The number of floats of the first stage's sums for one matrix [rows, width].
inline int64_t ColumnSumFloats(int64_t rows, int64_t width) {
  const int64_t row_block = ColumnRowBlock(rows, width);
  return (rows + row_block - 1) / row_block * width;
}

struct ColumnSumMemory {
  // Takes `floats` floats in all, for `count` merges: from `batch`, or scratch if it is null. REQUIRES without a
  // batch: count = 1 and at most kColumnPartials floats.
  ColumnSumMemory(const Stream& stream, GradientBatch* batch, int64_t floats, int64_t count) {
    static_assert(kColumnPartials * sizeof(float) <= LaunchMemory::kScratchBytes);
    HADAL_CHECK(batch != nullptr || count == 1);
    if (batch == nullptr) {
      partials = reinterpret_cast<float*>(DeviceOf(stream).launch_memory().scratch());
      return;
    }
    partials = batch->Take(stream, floats, count);
    later = &batch->merges();
  }

  float* partials = nullptr;
  std::vector<ColumnMerge>* later = nullptr;  // to which the caller appends its merges; null: it merges at once
};

}  // namespace hadal::cuda
