// The second stage of a sum over rows: adds the partial sums of all blocks of rows, for each column.
//
// A block has kMergeColumns columns. The parts are divided into runs: warp w adds run w in ascending order, then the
// runs are added in ascending order, so the order depends only on the number of parts. Threads mostly wait for memory
// here; a run therefore has as many parts as a thread can load at once, more only if 32 runs are not enough.
#pragma once

#include <cstdint>

#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {

inline constexpr int kMergeColumns = kWarp;
inline constexpr int kMostMergeThreads = 1024;
inline constexpr int kLoadsAhead = 8;

// Threads of a block that adds `parts` parts: one warp per run.
inline int MergeThreads(int64_t parts) {
  const int64_t runs = (parts + kLoadsAhead - 1) / kLoadsAhead, most = kMostMergeThreads / kWarp;
  return kWarp * static_cast<int>(runs < 1 ? 1 : runs < most ? runs : most);
}

// The values parts[part · stride] of one column, part < count.
struct ColumnParts {
  DevicePointer<const float> parts;
  int64_t count = 0, stride = 0;

  // Returns the sum of parts [begin, end), in ascending order.
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
  // Returns the sum of run `run` of `runs`.
  HADAL_DEVICE float SumOfRun(int64_t run, int64_t runs) const {
    const int64_t length = (count + runs - 1) / runs, end = (run + 1) * length;
    return Sum(run * length, end < count ? end : count);
  }
};

// result += the sum of all parts. `mine`: whether the thread's column exists. `exchange` [kMostMergeThreads]. Every
// thread of the block must call it.
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
