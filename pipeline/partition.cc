#include "pipeline/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "pipeline/partition_search.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

absl::Status CheckProblem(const PartitionProblem& problem) {
  const int64_t n = std::ssize(problem.cost);
  if (problem.stages < 1 || problem.chunks < 1 || n < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a partition needs stages, chunks and sublayers of at least 1; got ",
                                                   problem.stages, " stages, ", problem.chunks, " chunks, ", n,
                                                   " sublayers"));
  }
  if (std::ssize(problem.cut_allowed_before) != n || (!problem.bytes.empty() && std::ssize(problem.bytes) != n)) {
    return absl::InvalidArgumentError(absl::StrCat("a partition of ", n, " sublayers got ",
                                                   problem.cut_allowed_before.size(), " marks of legal cuts and ",
                                                   problem.bytes.size(), " byte counts"));
  }
  for (int64_t i = 0; i < n; ++i) {
    const int64_t bytes = problem.bytes.empty() ? 0 : problem.bytes[i];
    if (!std::isfinite(problem.cost[i]) || problem.cost[i] < 0 || bytes < 0) {
      return absl::InvalidArgumentError(absl::StrCat("sublayer ", i, " has cost ", problem.cost[i], " and ", bytes,
                                                     " bytes; both must be finite and ≥ 0"));
    }
  }
  return absl::OkStatus();
}

// Runs of sublayers between legal cuts: a piece consists of whole blocks.
PartitionBlocks MakeBlocks(const PartitionProblem& problem) {
  PartitionBlocks blocks;
  double cost = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < problem.cost.size(); ++i) {
    if (i == 0 || problem.cut_allowed_before[i]) {
      blocks.begin.push_back(static_cast<int>(i));
      blocks.cost_before.push_back(cost);
      blocks.bytes_before.push_back(bytes);
    }
    cost += problem.cost[i];
    bytes += problem.bytes.empty() ? 0 : problem.bytes[i];
  }
  blocks.begin.push_back(static_cast<int>(problem.cost.size()));
  blocks.cost_before.push_back(cost);
  blocks.bytes_before.push_back(bytes);
  blocks.bytes_limit = problem.bytes.empty() ? std::numeric_limits<int64_t>::max() : problem.bytes_limit;
  return blocks;
}

absl::Status CheckPieces(const PartitionProblem& problem, const PartitionBlocks& blocks) {
  const int64_t pieces = int64_t{problem.stages} * problem.chunks;
  if (pieces <= blocks.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      problem.stages, " stages × ", problem.chunks, " chunks are ", pieces, " pieces, but the ", problem.cost.size(),
      " sublayers can be cut into at most ", blocks.size(), "; use fewer stages or chunks, or a deeper model"));
}

absl::Status CheckBlockBytes(const PartitionBlocks& blocks) {
  for (int i = 0; i < blocks.size(); ++i) {
    const int64_t bytes = blocks.bytes_before[i + 1] - blocks.bytes_before[i];
    if (bytes <= blocks.bytes_limit) continue;
    return absl::ResourceExhaustedError(absl::StrCat("sublayers ", blocks.begin[i], " to ", blocks.begin[i + 1] - 1,
                                                     " cannot be cut apart and need ", bytes,
                                                     " bytes; the limit of a piece is ", blocks.bytes_limit,
                                                     "; use smaller micro-batches or activation checkpointing"));
  }
  return absl::OkStatus();
}

// Fills in everything that follows from the borders.
Partition Describe(const PartitionProblem& problem, const PartitionBlocks& blocks,
                   const std::vector<int>& block_borders) {
  const int pieces = problem.pieces();
  Partition partition;
  partition.rank_cost.assign(problem.stages, 0.0);
  for (const int block : block_borders) partition.borders.push_back(blocks.begin[block]);
  for (int g = 0; g < pieces; ++g) {
    const double cost = blocks.Cost(block_borders[g], block_borders[g + 1]);
    partition.piece_cost.push_back(cost);
    partition.rank_cost[g % problem.stages] += cost;
    partition.bottleneck_cost = std::max(partition.bottleneck_cost, cost);
  }
  partition.lower_bound = blocks.Cost(0, blocks.size()) / pieces;
  for (int i = 0; i < blocks.size(); ++i)
    partition.lower_bound = std::max(partition.lower_bound, blocks.Cost(i, i + 1));
  partition.lower_bound = std::min(partition.lower_bound, partition.bottleneck_cost);  // rounding of the mean
  return partition;
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
    return absl::InvalidArgumentError(absl::StrCat("an explicit split needs one count for each of the ", problem.stages,
                                                   " stages × ", problem.chunks, " chunks; got ", counts.size()));
  }
  std::vector<int> block_borders = {0};
  int64_t border = 0;
  for (size_t g = 0; g < counts.size(); ++g) {
    border += counts[g];
    if (counts[g] < 1 || border > std::ssize(problem.cost)) break;
    const auto block = std::lower_bound(blocks.begin.begin(), blocks.begin.end(), border);
    if (*block != border) {
      return absl::InvalidArgumentError(absl::StrCat("piece ", g + 1, " of the explicit split would begin at sublayer ",
                                                     border,
                                                     ", where no cut is legal; the nearest legal ones are before ",
                                                     NearestCuts(blocks, static_cast<int>(border))));
    }
    block_borders.push_back(static_cast<int>(block - blocks.begin.begin()));
  }
  if (std::ssize(block_borders) != problem.pieces() + 1 || border != std::ssize(problem.cost)) {
    return absl::InvalidArgumentError(absl::StrCat("the counts of an explicit split must be ≥ 1 and add up to the ",
                                                   problem.cost.size(), " sublayers; after ", block_borders.size() - 1,
                                                   " of ", counts.size(), " pieces they stand at ", border));
  }
  return block_borders;
}

}  // namespace

absl::StatusOr<Partition> MakePartition(const PartitionProblem& problem) {
  HADAL_RETURN_IF_ERROR(CheckProblem(problem));
  const PartitionBlocks blocks = MakeBlocks(problem);
  HADAL_RETURN_IF_ERROR(CheckPieces(problem, blocks));
  HADAL_RETURN_IF_ERROR(CheckBlockBytes(blocks));
  const int needed = PiecesWithinBytes(blocks);
  if (needed > problem.pieces()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no split into ", problem.pieces(), " pieces keeps each within ", blocks.bytes_limit, " bytes; ",
                     needed, " pieces would; use more stages, smaller micro-batches or activation checkpointing"));
  }
  const double bound = SmallestBound(blocks, problem.pieces());
  return Describe(problem, blocks, BalancedBorders(blocks, problem.pieces(), bound));
}

absl::StatusOr<Partition> PartitionByCounts(const PartitionProblem& problem, const std::vector<int>& counts) {
  HADAL_RETURN_IF_ERROR(CheckProblem(problem));
  const PartitionBlocks blocks = MakeBlocks(problem);
  HADAL_RETURN_IF_ERROR(CheckPieces(problem, blocks));
  HADAL_ASSIGN_OR_RETURN(const std::vector<int> block_borders, BordersOfCounts(problem, blocks, counts));
  for (int g = 0; g < problem.pieces(); ++g) {
    const int64_t bytes = blocks.Bytes(block_borders[g], block_borders[g + 1]);
    if (bytes <= blocks.bytes_limit) continue;
    return absl::ResourceExhaustedError(absl::StrCat("piece ", g, " of the explicit split needs ", bytes,
                                                     " bytes; the limit of a piece is ", blocks.bytes_limit,
                                                     "; give it fewer sublayers"));
  }
  return Describe(problem, blocks, block_borders);
}

}  // namespace hadal
