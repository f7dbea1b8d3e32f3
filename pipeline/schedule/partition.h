// Cuts the list of sublayers into stages · chunks contiguous pieces (global chunks) with costs as equal as possible.
//
// What: of all splits into exactly G = stages·chunks non-empty pieces that begin only where a cut is allowed, the one
// with
//   1. the smallest largest piece, exactly; then
//   2. the smallest Σ (piece cost)², which also balances the pieces that are not the bottleneck; then
//   3. the earliest borders, from the last one backwards.
// The result is a pure function of the problem. Memory is not considered: memory_fit.h checks a finished layout.
// Why: the slowest piece sets the pipeline's pace; equal counts of sublayers cost about 14% with encoder layers of
// 12·d² and decoder layers of 16·d² per token, and more with a large head.
// With several chunks per rank, a rank's time in a step is the sum over its chunks. The largest piece, which is
// minimised here, sets the pace of the interleaved steady state; a rank's sum is at most `chunks` times that.
//
// How: (1) bisection over bounds with a greedy left-to-right test. It moves only between costs that some piece really
// has, so its result is exact (Pinar & Aykanat 2004, "Fast optimal load balancing algorithms for 1D partitioning",
// section 4). (2) and (3) by dynamic programming over pieces, with divide and conquer because the best border is
// monotone: O(G · n · log n). A piece's cost is the difference of two prefix sums in double.
//
// Shape legend: n sublayers, G pieces.
// Threads: pure. Blocking: none.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace hadal {

struct PartitionProblem {
  int stages = 1;
  int chunks = 1;
  std::vector<double> cost;              // [n] any unit, finite, ≥ 0
  std::vector<bool> cut_allowed_before;  // [n] whether a piece may begin at the sublayer; entry 0 is not read

  int pieces() const { return stages * chunks; }
};

// Returns the best split's borders [G + 1]: piece g is sublayers [borders[g], borders[g + 1]).
// Errors: InvalidArgument: sizes or values out of range, more pieces than legal places to begin one.
absl::StatusOr<std::vector<int>> MakePartition(const PartitionProblem& problem);

// Returns the borders of a split given by the user as the number of sublayers of each piece, in order of depth.
// Errors: InvalidArgument: not G counts, a count below 1, a sum other than n, or a cut where none is legal (the message
// names the nearest legal ones).
absl::StatusOr<std::vector<int>> PartitionByCounts(const PartitionProblem& problem, const std::vector<int>& counts);

// SmallestBound and BalancedBorders are the search itself, over blocks: runs of sublayers between places where a cut is
// allowed.
//
// REQUIRES (of all functions): costs ≥ 0, 1 ≤ pieces ≤ blocks.size().
// Threads: pure. Blocking: none.
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
