// Expands a grid of runs (configs/compare.proto) into cells: name, arguments of `hadal train`, config, expected cost.
//
// Cells are ordered by cost, cheapest first, so that a budget excludes only the most expensive ones; cells of equal
// cost are in the order of the file, with the last axis varying fastest. Every cell's config is loaded and checked
// before the first run.
// Thread safety: pure, except for reading files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "configs/compare.pb.h"
#include "configs/run.pb.h"

namespace hadal {

struct GridAxis {
  std::string name;
  std::vector<std::string> labels;
  bool is_seeds = false;  // its values set `seed` and nothing else
};

struct GridCell {
  std::string name;                    // "method=deepnorm,depth=18": also the name of its run directory
  std::vector<int> place;              // [axes] index of its label on each axis
  std::vector<std::string> files;      // config files for `hadal train`
  std::vector<std::string> overrides;  // its --set arguments
  config::RunConfig config;            // the config that files and overrides give
  double cost = 0;                     // CellCost
  int ranks = 0;                       // of the run; 0: ComparisonOptions::ranks
};

struct ComparisonGrid {
  config::Comparison settings;
  std::vector<GridAxis> axes;
  std::vector<GridCell> cells;
};

// Multiply-adds of the matrix products with the layers' weights in a run, forward and backward: 3 × weights of the
// layers × target tokens per step × steps (1 step if the run has no limit in steps). Only for comparing cells.
double CellCost(const config::RunConfig& config);

// Reads a grid. Applies `overrides` ("a.b=c") to every cell. `seeds`: the values of an additional axis named "seed";
// empty: no such axis.
// Errors: those of loading files; InvalidArgument for names of axes or values that are missing, duplicate or not usable
// as a directory name, for an exclusion with an unknown axis or label, for a grid without cells or of more than
// 100,000, and for a cell with an invalid config (names the cell).
absl::StatusOr<ComparisonGrid> LoadGrid(const std::string& file, const std::vector<std::string>& overrides,
                                        const std::vector<uint64_t>& seeds = {});

}  // namespace hadal
