// 256 neighbouring elements of flat arrays, as a warp moves them where each element is computed by itself.
//
// A lane has two runs of four, [4·lane, 4·lane + 4) and the same 128 elements on: neighbouring lanes move neighbouring bytes, and every access
// fills the sectors of memory that it touches. (Eight neighbours a lane, eight.h, do that for BFloat16 alone: of fp32 each of their two
// accesses would fill half of every sector.) Where arrays end inside a span, or do not lie on 16 bytes, lanes take every 32nd element.
#pragma once

#include <cstdint>

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {

struct WarpSpan {
  static constexpr int kElements = 8 * kWarp;
  int64_t begin, size;  // of the span's first element; of the array

  HADAL_DEVICE bool whole() const { return size - begin >= kElements; }
  // The first of the lane's first run of four; its second begins kElements / 2 on.
  HADAL_DEVICE int64_t run() const { return begin + 4 * (ThreadIndex() % kWarp); }

  // Calls body(element) for every 32nd element that there is.
  template <typename Body>
  HADAL_DEVICE void ForSingles(const Body& body) const {
    const int64_t end = whole() ? begin + kElements : size;
    HADAL_UNROLL_BY(1) for (int64_t i = begin + ThreadIndex() % kWarp; i < end; i += kWarp) body(i);
  }
};

// That of the calling warp where every warp of a launch has one.
HADAL_DEVICE WarpSpan ThisWarpSpan(int64_t size) {
  return {(BlockX() * ThreadsInBlock() + ThreadIndex()) / kWarp * WarpSpan::kElements, size};
}

// The lane's two runs of a whole span.  REQUIRES: arrays on 16 bytes.
HADAL_DEVICE Eight LoadRuns(DevicePointer<const float> from, const WarpSpan& span) {
  const Vector16 low = LoadVector(from + span.run()), high = LoadVector(from + (span.run() + WarpSpan::kElements / 2));
  Eight result;
  HADAL_UNROLL for (int i = 0; i < 4; ++i) {
    result.v[i] = FloatOf(low.word[i]);
    result.v[i + 4] = FloatOf(high.word[i]);
  }
  return result;
}
template <typename T>
HADAL_DEVICE void StoreRuns(DevicePointer<T> to, const WarpSpan& span, const Eight& values) {
  StoreFourAligned(to + span.run(), values.v);
  StoreFourAligned(to + (span.run() + WarpSpan::kElements / 2), values.v + 4);
}

}  // namespace hadal::cuda
