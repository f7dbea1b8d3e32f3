// A grid of runs (configs/compare.proto) unrolled into its cells: name, what `hadal train` is given, config, expected
// cost.
//
// Cells are ordered by cost, the cheapest first, so that a budget cuts only the dear ones; equally dear ones as
// written, the last axis fastest. Every cell's config is loaded and checked here, before the first run.
// Thread safety: pure but for reading files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "configs/compare.pb.h"
#include "configs/run.pb.h"

namespace hadal {

struct GridAxis {
  std::string name;
  std::vector<std::string> labels;
};

struct GridCell {
  std::string name;                    // "method=deepnorm,depth=18": its run directory's name
  std::vector<int> place;              // [axes] index of its label
  std::vector<std::string> files;      // what `hadal train` is given …
  std::vector<std::string> overrides;  // … and its --set
  config::RunConfig config;            // both together
  double cost = 0;                     // CellCost
  int ranks = 0;                       // of the run; 0: as many as the others
};

struct ComparisonGrid {
  config::Comparison settings;
  std::vector<GridAxis> axes;
  std::vector<GridCell> cells;
};

// Multiply-adds of the run's matrix products, forward and backward, attention's apart: 3 × weights of the layers ×
// tokens a step × steps. Of a run that is not limited by steps: those of one step. Compares cells with one another.
double CellCost(const config::RunConfig& config);

// `overrides` ("a.b=c") are laid over every cell.
// Errors: those of loading files; InvalidArgument for axes or values without a name, with the same name twice or with
// characters that a directory's name should not have, for an exclusion that names no axis or label, for a grid of no
// cells, and for a cell whose config is wrong, with the cell's name.
absl::StatusOr<ComparisonGrid> LoadGrid(const std::string& file, const std::vector<std::string>& overrides);

}  // namespace hadal
