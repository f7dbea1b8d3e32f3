// The second stage of a sum over rows: the parts of all blocks of rows, added for each column.
//
// A block takes kMergeColumns columns; warp w adds run w of the parts in ascending order, then the runs meet in ascending order: a function
// of the number of parts alone. A run is as long as the loads that a thread has under way at a time, because waiting for memory is all
// that it does here; only where 32 runs of them are not enough it is longer.
#pragma once

#include <cstdint>

#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {

inline constexpr int kMergeColumns = kWarp;
inline constexpr int kMostMergeThreads = 1024;
inline constexpr int kLoadsAhead = 8;

// Threads of a block that adds so many parts: a warp a run.
inline int MergeThreads(int64_t parts) {
  const int64_t runs = (parts + kLoadsAhead - 1) / kLoadsAhead, most = kMostMergeThreads / kWarp;
  return kWarp * static_cast<int>(runs < 1 ? 1 : runs < most ? runs : most);
}

// parts[part · stride] for every part below `count`, of one column.
struct ColumnParts {
  DevicePointer<const float> parts;
  int64_t count = 0, stride = 0;

  // Those from `begin` to `end`, in ascending order.
  HADAL_DEVICE float Sum(int64_t begin, int64_t end) const {
    float total = 0.0f;
    for (int64_t part = begin; part < end; part += kLoadsAhead) {
      float ahead[kLoadsAhead];
      HADAL_UNROLL for (int i = 0; i < kLoadsAhead; ++i) {
        ahead[i] = part + i < end ? Load(parts + (part + i) * stride) : 0.0f;
      }
      HADAL_UNROLL for (int i = 0; i < kLoadsAhead; ++i) total += ahead[i];
    }
    return total;
  }
  // Run `run` of `runs`.
  HADAL_DEVICE float SumOfRun(int64_t run, int64_t runs) const {
    const int64_t length = (count + runs - 1) / runs, end = (run + 1) * length;
    return Sum(run * length, end < count ? end : count);
  }
};

// result += the sum of all parts. `mine`: whether the thread's column exists. `exchange` [kMostMergeThreads]. Every thread of the block
// comes here.
HADAL_DEVICE void MergeColumn(const ColumnParts& column, bool mine, Shared<float> exchange,
                              DevicePointer<float> result) {
  const int run = ThreadIndex() / kMergeColumns, runs = ThreadsInBlock() / kMergeColumns;
  float total = mine ? column.SumOfRun(run, runs) : 0.0f;
  exchange[ThreadIndex()] = total;
  Barrier();
  if (run != 0 || !mine) return;
  for (int r = 1; r < runs; ++r) total += exchange[r * kMergeColumns + ThreadIndex()];
  Store(result, Load(result) + total);
}

}  // namespace hadal::cuda
