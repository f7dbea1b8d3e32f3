// Every grid of configs/papers is read, and every cell of it planned: schema, axes, methods at their depths, what
// fields mean together.
#include "tools/compare/comparison_grid.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "layers/model_plan.h"
#include "runtime/files.h"
#include "tests/support/temporary_directory.h"
#include "tools/config/run_options.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kAxes = R"(
axes {
  name: "method"
  values { label: "deepnorm" files: "deepnorm.textproto" }
  values { label: "post_ln" set: "model.residual.method=post_ln" }
}
axes {
  name: "depth"
  values { label: "12" set: "model.encoder_layers=12" set: "model.decoder_layers=12" }
  values { label: "2" set: "model.encoder_layers=2" set: "model.decoder_layers=2" }
}
)";

class ComparisonGridTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("base.textproto", "model { d_model: 8 d_ff: 16 heads: 2 } stop { steps: 10 }");
    Write("deepnorm.textproto", "model { residual { method: \"deepnorm\" } }");
  }

  std::string Write(const std::string& name, const std::string& text) {
    std::string path = JoinPath(directory_.path(), name);
    EXPECT_TRUE(ReplaceFile(path, text, "test").ok());
    return path;
  }
  absl::StatusOr<ComparisonGrid> Load(const std::string& text, const std::vector<std::string>& overrides = {}) {
    return LoadGrid(Write("grid.textproto", "base: \"base.textproto\"\n" + text), overrides);
  }
  std::string Error(const std::string& text) { return std::string(Load(text).status().message()); }

  TemporaryDirectory directory_;
};

std::vector<std::string> Names(const ComparisonGrid& grid) {
  std::vector<std::string> names;
  for (const GridCell& cell : grid.cells) names.push_back(cell.name);
  return names;
}

TEST_F(ComparisonGridTest, UnrollsEveryCombinationCheapFirst) {
  const auto grid = Load(kAxes).value();
  EXPECT_THAT(Names(grid), ElementsAre("method=deepnorm,depth=2", "method=post_ln,depth=2", "method=deepnorm,depth=12",
                                       "method=post_ln,depth=12"));
  EXPECT_EQ(grid.cells[0].cost * 6, grid.cells[2].cost);
  EXPECT_THAT(grid.cells[1].place, ElementsAre(1, 1));
  EXPECT_EQ(grid.cells[1].config.model().residual().method(), "post_ln");
  EXPECT_EQ(grid.cells[2].config.model().encoder_layers(), 12);
}

TEST_F(ComparisonGridTest, LaysSettingsOverFilesAndTheCommandLineOverAll) {
  const auto grid =
      Load(std::string("set: \"model.residual.method=pre_ln\"\n") + kAxes, {"model.decoder_layers=3"}).value();
  for (const GridCell& cell : grid.cells) {
    EXPECT_EQ(cell.config.model().residual().method(), cell.place[0] == 0 ? "pre_ln" : "post_ln");
    EXPECT_EQ(cell.config.model().decoder_layers(), 3);
  }
  EXPECT_THAT(grid.cells[0].overrides, ElementsAre("model.residual.method=pre_ln", "model.encoder_layers=2",
                                                   "model.decoder_layers=2", "model.decoder_layers=3"));
}

TEST_F(ComparisonGridTest, SeedsAreOneMoreAxis) {
  const auto grid =
      LoadGrid(Write("grid.textproto", std::string("base: \"base.textproto\"\n") + kAxes), {}, {7, 8}).value();
  ASSERT_EQ(grid.cells.size(), 8u);
  EXPECT_EQ(grid.cells[1].name, "method=deepnorm,depth=2,seed=8");
  EXPECT_EQ(grid.cells[1].config.seed(), 8u);
  EXPECT_TRUE(grid.axes[2].is_seeds);
  EXPECT_FALSE(grid.axes[1].is_seeds);
  const auto written =
      Load("axes { name: \"s\" values { label: \"a\" set: \"seed=1\" } values { label: \"b\" set: \"seed=2\" } }")
          .value();
  EXPECT_TRUE(written.axes[0].is_seeds);
  EXPECT_THAT(std::string(LoadGrid(directory_ / "grid.textproto", {}, {3, 3}).status().message()),
              HasSubstr("given twice"));
}

TEST_F(ComparisonGridTest, LeavesOutWhatAllPartsOfAnExclusionName) {
  const auto grid = Load(std::string(kAxes) + "exclude: \"depth=12,method=post_ln\"").value();
  EXPECT_THAT(Names(grid),
              ElementsAre("method=deepnorm,depth=2", "method=post_ln,depth=2", "method=deepnorm,depth=12"));
  const auto column = Load(std::string(kAxes) + "exclude: \"method=post_ln|deepnorm,depth=2\"");
  EXPECT_THAT(Names(*column), ElementsAre("method=deepnorm,depth=12", "method=post_ln,depth=12"));
}

TEST_F(ComparisonGridTest, RefusesWhatCannotBeRun) {
  EXPECT_THAT(Error("axis { }"), HasSubstr("did you mean \"axes\"?"));
  EXPECT_THAT(Error("total_minutes: -1"), AllOf(HasSubstr("grid.textproto:2:"), HasSubstr("[0, inf)")));
  EXPECT_THAT(Error(""), HasSubstr("no axes"));
  EXPECT_THAT(Error("axes { name: \"a\" }"), HasSubstr("axis \"a\" has no values"));
  EXPECT_THAT(Error("axes { name: \"a/b\" values { label: \"1\" } }"), HasSubstr("letters, digits"));
  EXPECT_THAT(Error("axes { name: \"a\" values { label: \"1\" } values { label: \"1\" } }"), HasSubstr("twice"));
  EXPECT_THAT(Error("axes { name: \"a\" values { lable: \"1\" } }"), HasSubstr("did you mean \"label\"?"));
  EXPECT_THAT(Error(std::string(kAxes) + "exclude: \"seed=1\""), HasSubstr("the axes are method, depth"));
  EXPECT_THAT(Error(std::string(kAxes) + "exclude: \"depth=3\""), HasSubstr("it has 12, 2"));
  EXPECT_THAT(Error(std::string(kAxes) + "exclude: \"depth=2\" exclude: \"depth=12\""), HasSubstr("every cell"));
}

TEST_F(ComparisonGridTest, AGridOfAMillionCellsIsRefusedBeforeAnyIsRead) {
  std::string axes;
  for (int axis = 0; axis < 6; ++axis) {
    absl::StrAppend(&axes, "axes { name: \"axis", axis, "\" ");
    for (int value = 0; value < 10; ++value)
      absl::StrAppend(&axes, "values { label: \"", value, "\" set: \"seed=1\" } ");
    axes += "} ";
  }
  EXPECT_THAT(std::string(Load(axes).status().message()),
              HasSubstr("more than 100000 cells, with the axes up to \"axis5\""));
}

TEST_F(ComparisonGridTest, NamesTheCellOfAMistake) {
  EXPECT_THAT(Error("axes { name: \"heads\" values { label: \"2\" } values { label: \"3\" set: \"model.heads=3\" } }"),
              AllOf(HasSubstr("grid.textproto: heads=3: "), HasSubstr("model.")));
  EXPECT_THAT(Error("axes { name: \"a\" values { label: \"x\" set: \"modle.heads=3\" } }"),
              AllOf(HasSubstr("a=x: "), HasSubstr("did you mean \"model\"?")));
  EXPECT_THAT(Error("axes { name: \"a\" values { label: \"x\" files: \"gone.textproto\" } }"),
              HasSubstr("gone.textproto: cannot be read"));
}

TEST(CellCost, CountsWeightsTokensAndSteps) {
  config::RunConfig config;
  config.mutable_model()->set_encoder_layers(2);
  config.mutable_model()->set_decoder_layers(3);
  config.mutable_model()->set_d_model(4);
  config.mutable_model()->set_d_ff(8);
  config.mutable_batch()->set_micro_batches(2);
  config.mutable_batch()->set_target_tokens(10);
  config.mutable_stop()->set_steps(5);
  EXPECT_EQ(CellCost(config), 3.0 * (2 * (64 + 64) + 3 * (128 + 64)) * 20 * 5);
  config.mutable_model()->set_encoder_layers(0);
  EXPECT_EQ(CellCost(config), 3.0 * (3 * (64 + 64)) * 20 * 5);
}

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

void PlanCells(const std::string& path, bool trainable) {
  const ComparisonGrid grid = LoadGrid(path, {}).value();
  EXPECT_FALSE(grid.settings.title().empty());
  for (const GridCell& cell : grid.cells) {
    SCOPED_TRACE(cell.name);
    RunOptions options = MakeRunOptions(cell.config).value();
    EXPECT_TRUE(!trainable || CheckTrainable(options.train).ok());
    ModelOptions& model = options.train.model;
    model.target_vocabulary = model.adaptive() ? 267744 : 32768;  // WikiText-103's words
    model.source_vocabulary = model.has_encoder() ? model.target_vocabulary : 0;
    ASSERT_TRUE(ValidateModelOptions(model).ok()) << ValidateModelOptions(model);
    const ModelPlan plan = ModelPlan::Make(model);
    const int64_t encoder = cell.config.model().encoder_layers(), decoder = cell.config.model().decoder_layers();
    EXPECT_EQ(static_cast<int64_t>(plan.sublayers.size()),
              2 * encoder + (encoder > 0 ? 3 : 2) * decoder + (encoder > 0 ? 3 : 2));  // embeddings and head too
  }
}

// And trainable at the scale of papers; a laptop's are given their corpus when they run.
TEST(PaperGrids, EveryCellIsPlanned) {
  for (const auto& [scale, least] : {std::pair("paper", 12), {"laptop", 7}}) {
    const std::vector<std::string> grids = Grids(scale);
    EXPECT_GE(std::ssize(grids), least);
    for (const std::string& path : grids) {
      SCOPED_TRACE(path);
      PlanCells(path, /*trainable=*/least == 12);
    }
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
