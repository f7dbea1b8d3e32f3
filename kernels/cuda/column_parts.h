// The order in which a column's parts are added, in the second stage of a sum over rows.
//
// The parts are divided into runs of consecutive parts. A thread adds one run in ascending order; the calling kernel
// then adds the runs, in a fixed order of its own. The sums are bound by memory latency, so a thread loads kLoadsAhead
// parts before it adds them.
#pragma once

#include <cstdint>

#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {

inline constexpr int kLoadsAhead = 8;

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
  // Returns the sum of run `run` of `runs`, each of ⌈count / runs⌉ parts; the last ones may have fewer or none (0).
  HADAL_DEVICE float SumOfRun(int64_t run, int64_t runs) const {
    const int64_t length = (count + runs - 1) / runs, end = (run + 1) * length;
    return Sum(run * length, end < count ? end : count);
  }
};

}  // namespace hadal::cuda
