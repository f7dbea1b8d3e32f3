// The search behind partition.h, over blocks of sublayers that may not be cut. partition.h says what is minimised and
// how.
//
// REQUIRES (of all functions): costs ≥ 0, 1 ≤ pieces ≤ blocks.size().
// Threads: pure. Blocking: none.
#pragma once

#include <vector>

namespace hadal {

struct PartitionBlocks {
  std::vector<int> begin;           // [blocks + 1] first sublayer of each block, then n
  std::vector<double> cost_before;  // [blocks + 1] prefix sums

  int size() const { return static_cast<int>(begin.size()) - 1; }
  // Cost of the piece [first, last), in blocks. Rounded subtraction is monotone in both ends, which is all that the
  // search requires.
  double Cost(int first, int last) const { return cost_before[last] - cost_before[first]; }
};

// The smallest bound such that some split into `pieces` pieces has no piece above it. Exact. O(pieces · log² n) in
// practice.
double SmallestBound(const PartitionBlocks& blocks, int pieces);

// Borders [pieces + 1], in blocks, of the split with the smallest Σ cost² among those with no piece above `bound`.
// The earlier border wins a tie. O(pieces · n · log n) time, O(pieces · n) memory.  REQUIRES: bound ≥ SmallestBound.
std::vector<int> BalancedBorders(const PartitionBlocks& blocks, int pieces, double bound);

}  // namespace hadal
