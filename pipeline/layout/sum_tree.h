// The order in which the gradients and losses of a step are added: a function of its M micro-batches and G groups, so
// that every number of replicas that divides the groups gives the same bits.
//
// Group g has the micro-batches [⌈g·M/G⌉, ⌈(g+1)·M/G⌉), which may be none. v(m): the gradient or loss of micro-batch m.
// With G = o·2^j, o odd, block b = 0 … o−1 has the groups [b·2^j, (b+1)·2^j).
//   s(g)  = ((0 + v(m)) + v(m+1)) + …         over the group's micro-batches, ascending
//   t(b)  = the binary tree over the sums s of block b: its left half plus its right half, and so on down
//   sum   = (t(0) + t(1)) + … + t(o−1)
// A group without micro-batches adds nothing. Each of R replicas has G/R = 2^k neighbouring groups, a subtree. It adds
// them during its micro-batches, as a binary counter carries: with an accumulator for the group in progress and at most
// k kept sums. The rest of the tree is the tree over the replicas' R sums (SumSteps).  Threads: pure.
#pragma once

#include <vector>

namespace hadal {

// Whether groups / replicas is a whole number and a power of two.  REQUIRES: both ≥ 1.
bool MayDivide(int groups, int replicas);

// One addition: leaf[into] += leaf[from].
struct SumStep {
  int into = 0, from = 0;
};
// Returns the additions over `leaves` = o·2^j leaves, in order. Afterwards leaf 0 is the sum.  REQUIRES: leaves ≥ 1.
std::vector<SumStep> SumSteps(int leaves);

// What a replica adds when its accumulator holds the complete sum of a group.
struct GroupEnd {
  int micro_batch = 0;    // index of the group's last in the replica's list
  std::vector<int> kept;  // places of kept sums that are added to the accumulator, in order, and are then free
  int keep = -1;          // the place to which the accumulator is then moved; −1: it stays, as the replica's sum
};
// Returns the ends of the replica's groups that have micro-batches, ascending. Places are numbered from 0 in the order
// of first use, so there are 1 + the highest `keep`.  REQUIRES: replicas ≤ micro_batches; MayDivide(groups, replicas).
std::vector<GroupEnd> GroupEnds(int micro_batches, int groups, int replicas, int replica);

}  // namespace hadal
