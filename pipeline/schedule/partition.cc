#include "pipeline/schedule/partition.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

absl::Status CheckProblem(const PartitionProblem& problem) {
  const int64_t n = std::ssize(problem.cost);
  if (problem.stages < 1 || problem.chunks < 1 || n < 1) {
    return InvalidArgumentError("a partition needs stages, chunks and sublayers of at least 1; got ", problem.stages,
                                " stages, ", problem.chunks, " chunks, ", n, " sublayers");
  }
  if (std::ssize(problem.cut_allowed_before) != n) {
    return InvalidArgumentError("a partition of ", n, " sublayers got ", problem.cut_allowed_before.size(),
                                " marks of legal cuts");
  }
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(problem.cost[i]) || problem.cost[i] < 0) {
      return InvalidArgumentError("sublayer ", i, " has cost ", problem.cost[i], "; it must be finite and ≥ 0");
    }
  }
  return absl::OkStatus();
}

// Runs of sublayers between legal cuts: a piece consists of whole blocks.
struct PartitionBlocks {
  std::vector<int> begin;           // [blocks + 1] first sublayer of each block, then n
  std::vector<double> cost_before;  // [blocks + 1] prefix sums

  int size() const { return static_cast<int>(begin.size()) - 1; }
  // Cost of the piece [first, last), in blocks. Rounded subtraction is monotone in both ends, which is all that the
  // search requires.
  double Cost(int first, int last) const { return cost_before[last] - cost_before[first]; }
};

PartitionBlocks MakeBlocks(const PartitionProblem& problem) {
  PartitionBlocks blocks;
  double cost = 0;
  for (size_t i = 0; i < problem.cost.size(); ++i) {
    if (i == 0 || problem.cut_allowed_before[i]) {
      blocks.begin.push_back(static_cast<int>(i));
      blocks.cost_before.push_back(cost);
    }
    cost += problem.cost[i];
  }
  blocks.begin.push_back(static_cast<int>(problem.cost.size()));
  blocks.cost_before.push_back(cost);
  return blocks;
}

absl::Status CheckPieces(const PartitionProblem& problem, const PartitionBlocks& blocks) {
  const int64_t pieces = int64_t{problem.stages} * problem.chunks;
  if (pieces <= blocks.size()) return absl::OkStatus();
  return InvalidArgumentError(
      problem.stages, " stages × ", problem.chunks, " chunks are ", pieces, " pieces, but the ", problem.cost.size(),
      " parts of the model (its sublayers, embeddings and output) can be cut into at most ", blocks.size(),
      blocks.size() < static_cast<int64_t>(problem.cost.size())
          ? " (those that share a parameter or a skip stay together)"
          : "",
      "; use fewer stages or chunks, or a deeper model");
}

// The borders in sublayers.
std::vector<int> InSublayers(const PartitionBlocks& blocks, std::vector<int> borders) {
  for (int& border : borders) border = blocks.begin[border];
  return borders;
}

// "sublayer 10 or 13": where a cut near `sublayer` is legal.
std::string NearestCuts(const PartitionBlocks& blocks, int sublayer) {
  const auto after = std::lower_bound(blocks.begin.begin(), blocks.begin.end(), sublayer);
  std::string text;
  if (const int before = *(after - 1); before > 0) absl::StrAppend(&text, before);
  if (*after < blocks.begin.back()) absl::StrAppend(&text, text.empty() ? "" : " or ", *after);
  return text.empty() ? "no sublayer" : absl::StrCat("sublayer ", text);
}

// The borders, in blocks, of an explicit split.
absl::StatusOr<std::vector<int>> BordersOfCounts(const PartitionProblem& problem, const PartitionBlocks& blocks,
                                                 const std::vector<int>& counts) {
  if (std::ssize(counts) != problem.pieces()) {
    return InvalidArgumentError("an explicit split needs one count for each of the ", problem.stages, " stages × ",
                                problem.chunks, " chunks; got ", counts.size());
  }
  std::vector<int> block_borders = {0};
  int64_t border = 0;
  for (size_t g = 0; g < counts.size(); ++g) {
    border += counts[g];
    if (counts[g] < 1 || border > std::ssize(problem.cost)) break;
    const auto block = std::lower_bound(blocks.begin.begin(), blocks.begin.end(), border);
    if (*block != border) {
      return InvalidArgumentError("pipeline.split cuts before sublayer ", border,
                                  ", where no cut is legal; the nearest legal ones are before ",
                                  NearestCuts(blocks, static_cast<int>(border)));
    }
    block_borders.push_back(static_cast<int>(block - blocks.begin.begin()));
  }
  if (std::ssize(block_borders) != problem.pieces() + 1 || border != std::ssize(problem.cost)) {
    return InvalidArgumentError("the counts of an explicit split must be ≥ 1 and add up to the ", problem.cost.size(),
                                " sublayers; after ", block_borders.size() - 1, " of ", counts.size(),
                                " pieces they stand at ", border);
  }
  return block_borders;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The end of the longest piece that begins at block `first` and keeps within `bound`. Bisection: the sum grows with the
// end.
int Reach(const PartitionBlocks& blocks, int first, double bound) {
  int fits = first;
  int too_far = blocks.size() + 1;
  while (too_far - fits > 1) {
    const int middle = fits + (too_far - fits) / 2;
    (blocks.Cost(first, middle) <= bound ? fits : too_far) = middle;
  }
  return fits;
}

// What longest pieces from left to right make of a bound.
struct Probe {
  bool feasible = false;
  double largest = 0;             // cost of the largest piece, if feasible
  double next_bound = kInfinity;  // if not: every bound below this one ends in the same pieces
};

Probe TryBound(const PartitionBlocks& blocks, int pieces, double bound) {
  Probe probe;
  int first = 0;
  for (int g = 0; g < pieces && first < blocks.size(); ++g) {
    const int end = Reach(blocks, first, bound);
    if (end < blocks.size()) probe.next_bound = std::min(probe.next_bound, blocks.Cost(first, end + 1));
    if (end == first) return probe;  // one block alone is above the bound
    probe.largest = std::max(probe.largest, blocks.Cost(first, end));
    first = end;
  }
  probe.feasible = first == blocks.size();
  return probe;
}

// The smallest bound such that some split into `pieces` pieces has no piece above it. Exact. O(pieces · log² n) in
// practice.
double SmallestBound(const PartitionBlocks& blocks, int pieces) {
  // No bound below `low` is feasible; the factor covers the rounding of prefix sums.
  double low = blocks.Cost(0, blocks.size()) / pieces * (1 - 1e-12);
  for (int i = 0; i < blocks.size(); ++i) low = std::max(low, blocks.Cost(i, i + 1));
  double high = blocks.Cost(0, blocks.size());  // feasible
  // `low` is a bound that nothing smaller beats; it rises only to costs of real pieces, `high` falls to them, so they
  // meet.
  while (low < high) {
    double middle = low + (high - low) / 2;
    if (middle >= high) middle = low;  // neighbours in double
    const Probe probe = TryBound(blocks, pieces, middle);
    if (probe.feasible) {
      high = probe.largest;
    } else {
      low = probe.next_bound;
    }
  }
  return high;
}

// The borders [pieces + 1], in blocks, of the split with the smallest Σ cost² among those with no piece above `bound`;
// the earlier border wins a tie. O(pieces · n · log n) time, O(pieces · n) memory.
//
// A dynamic programme. best[j] = smallest Σ cost² of blocks [0, j) in g pieces. Going from g - 1 to g pieces,
// best_g[j] = min over i of best_{g-1}[i] + Cost(i, j)². Since Cost² is convex in the piece, the best i never falls as
// j grows, so the middle j is solved first and bounds the choice of both halves.
class Balance {
 public:
  Balance(const PartitionBlocks& blocks, int pieces, double bound) : blocks_(blocks), pieces_(pieces) {
    const int n = blocks.size();
    earliest_.resize(n + 1);
    for (int first = 0, end = 1; first < n; ++first) {
      for (const int reach = Reach(blocks, first, bound); end <= reach; ++end) earliest_[end] = first;
    }
    previous_.assign(n + 1, kInfinity);
    previous_[0] = 0;
    current_.resize(n + 1);
    choice_.resize(static_cast<size_t>(pieces) * (n + 1));
  }

  std::vector<int> Borders() {
    reached_ = 0;
    for (int g = 0; g < pieces_; ++g) {
      const int reached_before = reached_;
      while (reached_ < blocks_.size() && earliest_[reached_ + 1] <= reached_before) ++reached_;
      std::fill(current_.begin(), current_.end(), kInfinity);
      Solve({.piece = g, .first_end = g + 1, .last_end = reached_, .first_begin = g, .last_begin = reached_before});
      std::swap(previous_, current_);
    }
    HADAL_CHECK_EQ(reached_, blocks_.size());
    std::vector<int> borders(pieces_ + 1);
    borders[pieces_] = blocks_.size();
    for (int g = pieces_ - 1; g >= 0; --g) borders[g] = Choice(g, borders[g + 1]);
    return borders;
  }

 private:
  // Piece number `piece` for every end in [first_end, last_end], which is known to begin in [first_begin, last_begin].
  struct Range {
    int piece = 0;
    int first_end = 0;
    int last_end = 0;
    int first_begin = 0;
    int last_begin = 0;
  };

  int& Choice(int piece, int end) { return choice_[static_cast<size_t>(piece) * (blocks_.size() + 1) + end]; }

  void Solve(const Range& range) {
    if (range.first_end > range.last_end) return;
    const int end = range.first_end + (range.last_end - range.first_end) / 2;
    const int last = std::min(range.last_begin, end - 1);
    int best = -1;
    for (int begin = std::max(range.first_begin, earliest_[end]); begin <= last; ++begin) {
      const double cost = blocks_.Cost(begin, end);
      const double sum = previous_[begin] + cost * cost;
      if (best >= 0 && sum >= current_[end]) continue;
      best = begin;
      current_[end] = sum;
    }
    HADAL_CHECK_GE(best, 0);
    Choice(range.piece, end) = best;
    Range left = range;
    left.last_end = end - 1;
    left.last_begin = best;
    Solve(left);
    Range right = range;
    right.first_end = end + 1;
    right.first_begin = best;
    Solve(right);
  }

  const PartitionBlocks& blocks_;
  const int pieces_;
  int reached_ = 0;            // longest prefix that the pieces so far can hold
  std::vector<int> earliest_;  // [blocks + 1] earliest begin of a piece with this end that keeps within the bound
  std::vector<double> previous_, current_;  // [blocks + 1] best
  std::vector<int> choice_;                 // [pieces, blocks + 1]
};

}  // namespace

absl::StatusOr<std::vector<int>> MakePartition(const PartitionProblem& problem) {
  HADAL_RETURN_IF_ERROR(CheckProblem(problem));
  const PartitionBlocks blocks = MakeBlocks(problem);
  HADAL_RETURN_IF_ERROR(CheckPieces(problem, blocks));
  const double bound = SmallestBound(blocks, problem.pieces());
  return InSublayers(blocks, Balance(blocks, problem.pieces(), bound).Borders());
}

absl::StatusOr<std::vector<int>> PartitionByCounts(const PartitionProblem& problem, const std::vector<int>& counts) {
  HADAL_RETURN_IF_ERROR(CheckProblem(problem));
  const PartitionBlocks blocks = MakeBlocks(problem);
  HADAL_RETURN_IF_ERROR(CheckPieces(problem, blocks));
  HADAL_ASSIGN_OR_RETURN(std::vector<int> block_borders, BordersOfCounts(problem, blocks, counts));
  return InSublayers(blocks, std::move(block_borders));
}

}  // namespace hadal
