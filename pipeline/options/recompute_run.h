// Which sublayers drop their activations in the forward and recompute them in the backward (stage/chunk.h), as data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

namespace hadal {

// A run is the sublayers from `first` up to, not including, the `first` of the list's next run. In a list, `first`
// ascends. Sublayers in front of the first run keep their activations.
struct RecomputeRun {
  int32_t first = 0;
  int32_t length = 0;  // sublayers per recomputed segment, more where a cut is not legal; 0: activations are kept
  bool operator==(const RecomputeRun&) const = default;
};

// The segment length of a sublayer. All sublayers from it up to, not including, `end` have the same one.
struct SegmentLengthAt {
  int32_t length = 0, end = std::numeric_limits<int32_t>::max();
};
inline SegmentLengthAt LengthAt(std::span<const RecomputeRun> runs, int32_t sublayer) {
  const auto next = std::ranges::upper_bound(runs, sublayer, {}, &RecomputeRun::first);
  SegmentLengthAt at;
  if (next != runs.begin()) at.length = (next - 1)->length;
  if (next != runs.end()) at.end = next->first;
  return at;
}

// Returns the longest segment length; 0: nothing is recomputed.
inline int32_t LongestLength(std::span<const RecomputeRun> runs) {
  int32_t longest = 0;
  for (const RecomputeRun& run : runs) longest = std::max(longest, run.length);
  return longest;
}

}  // namespace hadal
