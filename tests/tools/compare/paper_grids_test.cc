// Every grid of configs/papers is read, and every cell of it planned: schema, axes, methods at their depths, what
// fields mean together.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "layers/model_plan.h"
#include "runtime/files.h"
#include "tests/support/temporary_directory.h"
#include "tools/compare/comparison_grid.h"
#include "tools/config/run_options.h"

namespace hadal {
namespace {

const std::string kPapers = std::string(HADAL_CONFIGS) + "/papers/";

// The files of a scale that are grids: those that say so in their first line.
std::vector<std::string> Grids(const std::string& scale) {
  std::vector<std::string> grids;
  const std::vector<std::string> names = *ListDirectory(kPapers + scale);
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(kPapers, scale, "/", name);
    if (absl::StartsWith(Contents(path), "# proto-message: hadal.config.Comparison\n")) grids.push_back(path);
  }
  return grids;
}

// `check` is one more that each cell has to pass.
void PlanCells(const std::string& path, absl::Status (*check)(const TrainOptions&)) {
  const absl::StatusOr<ComparisonGrid> grid = LoadGrid(path, {});
  ASSERT_TRUE(grid.ok()) << grid.status();
  EXPECT_FALSE(grid->settings.title().empty());
  for (const GridCell& cell : grid->cells) {
    SCOPED_TRACE(cell.name);
    absl::StatusOr<RunOptions> options = MakeRunOptions(cell.config);
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_TRUE(check(options->train).ok()) << check(options->train);
    ModelOptions& model = options->train.model;
    model.target_vocabulary = model.adaptive() ? 267744 : 32768;  // WikiText-103's words
    model.source_vocabulary = model.has_encoder() ? model.target_vocabulary : 0;
    ASSERT_TRUE(ValidateModelOptions(model).ok()) << ValidateModelOptions(model);
    const ModelPlan plan = ModelPlan::Make(model);
    const int64_t encoder = cell.config.model().encoder_layers(), decoder = cell.config.model().decoder_layers();
    EXPECT_EQ(static_cast<int64_t>(plan.sublayers.size()),
              2 * encoder + (encoder > 0 ? 3 : 2) * decoder + (encoder > 0 ? 3 : 2));  // embeddings and head too
  }
}

TEST(PaperGrids, EveryCellAtPaperScaleIsPlannedAndTrainable) {
  const std::vector<std::string> grids = Grids("paper");
  EXPECT_GE(grids.size(), 12u);
  for (const std::string& path : grids) {
    SCOPED_TRACE(path);
    PlanCells(path, CheckTrainable);
  }
}

TEST(PaperGrids, EveryCellAtLaptopScaleIsPlanned) {
  const std::vector<std::string> grids = Grids("laptop");
  EXPECT_GE(grids.size(), 7u);
  for (const std::string& path : grids) {
    SCOPED_TRACE(path);
    PlanCells(path, [](const TrainOptions&) { return absl::OkStatus(); });  // the corpus is given when they run
  }
}

// Digits that tables hang on, read back through all layers of files and settings.
TEST(PaperGrids, TablesHaveTheirPapersSettings) {
  const auto cell = [](const std::string& grid, const std::string& name) {
    const absl::StatusOr<ComparisonGrid> loaded = LoadGrid(absl::StrCat(kPapers, "paper/", grid, ".textproto"), {});
    for (const GridCell& cell : loaded->cells) {
      if (cell.name == name) return cell.config;
    }
    ADD_FAILURE() << grid << " has no cell " << name;
    return config::RunConfig();
  };
  const config::RunConfig deepnet = cell("deepnet_table1", "method=deepnorm,depth=100");
  EXPECT_EQ(deepnet.batch().micro_batches() * deepnet.batch().target_tokens(), 524288);
  EXPECT_EQ(deepnet.learning_rate().peak(), 1.5e-3);
  EXPECT_EQ(cell("deepnet_table1", "method=t_fixup,depth=100").learning_rate().peak(), 5e-4);
  const config::RunConfig branchnorm = cell("branchnorm_table1", "method=branchnorm,depth=250");
  EXPECT_EQ(branchnorm.model().residual().growth_updates(), 4000);
  EXPECT_EQ(branchnorm.model().residual().method(), "branchnorm");
  EXPECT_EQ(cell("branchnorm_sweep", "method=branchnorm,rate=8e-4,warmup=none").learning_rate().warmup_updates(), 0);
  EXPECT_EQ(cell("branchnorm_growth", "growth=sigmoid,T=100").model().residual().branch_growth(), "sigmoid");
  const config::RunConfig b2t = cell("b2t_table1", "method=b2t,depth=60L-12L");
  EXPECT_EQ(b2t.model().encoder_layers(), 60);
  EXPECT_EQ(b2t.model().decoder_layers(), 12);
  EXPECT_EQ(cell("b2t_wikitext", "method=b2t,depth=16").model().encoder_layers(), 0);
}

}  // namespace
}  // namespace hadal
