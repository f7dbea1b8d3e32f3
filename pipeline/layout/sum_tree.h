// The order in which the gradients and losses of a step are added: a function of its M micro-batches and G groups, so
// that every number of replicas that divides the groups gives the same bits.
//
// Group g has the micro-batches [⌈g·M/G⌉, ⌈(g+1)·M/G⌉), which may be none. With G = o·2^j, o odd:
//   s(g)  = ((0 + v(m)) + v(m+1)) + …         over the group's micro-batches, ascending
//   t(b)  = the binary tree over the 2^j groups of block b: its left half plus its right half, and so on down
//   sum   = (t(0) + t(1)) + … + t(o−1)
// A group without micro-batches adds nothing. R replicas have G/R = 2^k neighbouring groups each: a subtree, which a
// replica adds as it goes, like a binary counter, with an accumulator for the group in progress and at most k kept
// sums. The rest of the tree is the tree over the replicas' R sums (SumSteps).  Threads: pure.
#pragma once

#include <vector>

namespace hadal {

// Whether `replicas` have as many groups each, a power of two.  REQUIRES: both ≥ 1.
bool MayDivide(int groups, int replicas);

// One addition: leaf[into] += leaf[from].
struct SumStep {
  int into = 0, from = 0;
};
// Returns the additions over `leaves` = o·2^j leaves, in order. Afterwards leaf 0 is the sum.  REQUIRES: leaves ≥ 1.
std::vector<SumStep> SumSteps(int leaves);

// What a replica adds when the last micro-batch of a group is in its accumulator.
struct GroupEnd {
  int micro_batch = 0;    // the group's last; of the replica's list
  std::vector<int> kept;  // places of kept sums that are added to the accumulator, in order, and are then free
  int keep = -1;          // the place to which the accumulator then moves; −1: it is the replica's sum and stays
};
// Returns the ends of the replica's groups that have micro-batches, ascending. Places are numbered from 0 in the order
// of first use, so there are 1 + the highest `keep`.  REQUIRES: replicas ≤ micro_batches; MayDivide(groups, replicas).
std::vector<GroupEnd> GroupEnds(int micro_batches, int groups, int replicas, int replica);

}  // namespace hadal
