// 256 contiguous elements of flat arrays, for element-wise operations of a warp.
//
// A lane has two runs of four elements: [4·lane, 4·lane + 4), and the same 128 elements later. Neighbouring lanes
// access neighbouring bytes, and every access fills the memory sectors that it touches. (Eight contiguous elements per
// lane, eight.h, do so for BFloat16 only: in fp32 each of the two accesses would fill half of every sector.) If an
// array ends inside a span, or is not 16-byte aligned, lanes access every 32nd element.
#pragma once

#include <cstdint>

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {

struct WarpSpan {
  static constexpr int kElements = 8 * kWarp;
  int64_t begin, size;  // index of the span's first element; size of the array

  HADAL_DEVICE bool whole() const { return size - begin >= kElements; }
  // Index of the lane's first run; the second run begins kElements / 2 later.
  HADAL_DEVICE int64_t run() const { return begin + 4 * (ThreadIndex() % kWarp); }

  // Calls body(element) for the lane's elements, every 32nd, that exist.
  template <typename Body>
  HADAL_DEVICE void ForSingles(const Body& body) const {
    const int64_t end = whole() ? begin + kElements : size;
    HADAL_UNROLL_BY(1) for (int64_t i = begin + ThreadIndex() % kWarp; i < end; i += kWarp) body(i);
  }
};

// Returns the span of the calling warp: warp w of the launch has the elements from 256·w on. The span is empty if
// these are beyond the array's end.
HADAL_DEVICE WarpSpan ThisWarpSpan(int64_t size) {
  return {(BlockX() * ThreadsInBlock() + ThreadIndex()) / kWarp * WarpSpan::kElements, size};
}

// Loads the lane's two runs. REQUIRES: a whole span; 16-byte aligned arrays.
HADAL_DEVICE Eight LoadRuns(DevicePointer<const float> from, const WarpSpan& span) {
  return EightOf(LoadVector(from + span.run()), LoadVector(from + (span.run() + WarpSpan::kElements / 2)));
}
// Stores the lane's two runs, rounded to T. REQUIRES: as LoadRuns.
template <typename T>
HADAL_DEVICE void StoreRuns(DevicePointer<T> to, const WarpSpan& span, const Eight& values) {
  StoreFourAligned(to + span.run(), values.v);
  StoreFourAligned(to + (span.run() + WarpSpan::kElements / 2), values.v + 4);
}

}  // namespace hadal::cuda
