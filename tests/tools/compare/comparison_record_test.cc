#include "tools/compare/comparison_result.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/files.h"
#include "tests/support/recorded_run.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

TEST(ComparisonRecord, HasTheGridAndWhatItsRunsHaveComeTo) {
  const TemporaryDirectory directory;
  ComparisonGrid grid;
  grid.axes = {{.name = "method", .labels = {"a", "b"}}, {.name = "seed", .labels = {"1", "2"}, .is_seeds = true}};
  grid.cells = {{.name = "method=a,seed=2", .place = {0, 1}}, {.name = "method=b,seed=1", .place = {1, 0}}};
  const std::string run = CellDirectory(directory.path(), grid.cells[0]);
  WriteRecordedRun(run, {.stages = {{.forward_seconds = 0.5}}});  // validates at step 6: 6.2
  ASSERT_TRUE(WriteCellRun(run, {.end = CellEnd::kCut, .wall_seconds = 60, .cpu_seconds = 30, .unigram_nll = 7}).ok());
  ASSERT_TRUE(WriteComparisonRecord(grid, directory.path()).ok());
  const nlohmann::json json = nlohmann::json::parse(Contents(directory / "grid.json"));
  EXPECT_EQ(json["title"], "Comparison");
  EXPECT_EQ(json["rule"]["trains_below_unigram"], 0.3);
  EXPECT_EQ(json["axes"][0], (nlohmann::json{{"name", "method"}, {"labels", {"a", "b"}}, {"seeds", false}}));
  EXPECT_EQ(json["axes"][1]["seeds"], true);
  nlohmann::json cell = json["cells"][0];
  EXPECT_NEAR(cell["below_unigram"], 0.8, 1e-9);
  cell.erase("below_unigram");
  EXPECT_EQ(cell, (nlohmann::json{{"name", "method=a,seed=2"},
                                  {"labels", {"a", "2"}},
                                  {"directory", "runs/method=a,seed=2"},
                                  {"log", "logs/method=a,seed=2.log"},
                                  {"state", "cut"},
                                  {"exit_code", 0},
                                  {"wall_seconds", 60},
                                  {"cpu_seconds", 30},
                                  {"unigram_nll", 7},
                                  {"model", "a model"},
                                  {"parameters", 12345},
                                  {"steps", 6},
                                  {"verdict", "trains"},
                                  {"loss", 6.5},
                                  {"best_validation_nll", 6.2},
                                  {"best_step", 6}}));
  EXPECT_EQ(json["cells"][1]["state"], "none");
  EXPECT_FALSE(json["cells"][1].contains("verdict"));
}

}  // namespace
}  // namespace hadal
