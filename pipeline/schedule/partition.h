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

}  // namespace hadal
