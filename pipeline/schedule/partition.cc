#include "pipeline/schedule/partition.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "pipeline/schedule/partition_search.h"
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
  if (std::ssize(problem.cut_allowed_before) != n) {
    return absl::InvalidArgumentError(absl::StrCat("a partition of ", n, " sublayers got ",
                                                   problem.cut_allowed_before.size(), " marks of legal cuts"));
  }
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(problem.cost[i]) || problem.cost[i] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("sublayer ", i, " has cost ", problem.cost[i], "; it must be finite and ≥ 0"));
    }
  }
  return absl::OkStatus();
}

// Runs of sublayers between legal cuts: a piece consists of whole blocks.
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
  return absl::InvalidArgumentError(absl::StrCat(
      problem.stages, " stages × ", problem.chunks, " chunks are ", pieces, " pieces, but the ", problem.cost.size(),
      " parts of the model (its sublayers, embeddings and output) can be cut into at most ", blocks.size(),
      blocks.size() < static_cast<int64_t>(problem.cost.size()) ? " (those that share a parameter stay together)" : "",
      "; use fewer stages or chunks, or a deeper model"));
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

absl::StatusOr<std::vector<int>> MakePartition(const PartitionProblem& problem) {
  HADAL_RETURN_IF_ERROR(CheckProblem(problem));
  const PartitionBlocks blocks = MakeBlocks(problem);
  HADAL_RETURN_IF_ERROR(CheckPieces(problem, blocks));
  const double bound = SmallestBound(blocks, problem.pieces());
  return InSublayers(blocks, BalancedBorders(blocks, problem.pieces(), bound));
}

absl::StatusOr<std::vector<int>> PartitionByCounts(const PartitionProblem& problem, const std::vector<int>& counts) {
  HADAL_RETURN_IF_ERROR(CheckProblem(problem));
  const PartitionBlocks blocks = MakeBlocks(problem);
  HADAL_RETURN_IF_ERROR(CheckPieces(problem, blocks));
  HADAL_ASSIGN_OR_RETURN(std::vector<int> block_borders, BordersOfCounts(problem, blocks, counts));
  return InSublayers(blocks, std::move(block_borders));
}

}  // namespace hadal
