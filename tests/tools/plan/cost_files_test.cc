#include "tools/plan/cost_files.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/files.h"
#include "tests/support/temporary_directory.h"
#include "tools/command_line.h"

namespace hadal {
namespace {

class CostFilesTest : public ::testing::Test {
 protected:
  CostFilesTest() {
    SetContents(
        both_.profile,
        "gflops: 100 message_gb_per_second: 1 capacities { source_tokens: 8 target_tokens: 8 } model { d_model: 512 "
        "d_ff: 2048 heads: 8 source_vocabulary: 100 target_vocabulary: 100 }");
    SetContents(both_.machine,
                "memory_gib: 8 memory_gb_per_second: 20 fp32 { peak_tflops: 0.2 } inter_node { gb_per_second: 3 }");
  }
  static std::unique_ptr<StepCosts> CostsOf(const CostFiles& files) {
    const absl::StatusOr<LoadedCosts> loaded = LoadCosts(files);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    absl::StatusOr<std::unique_ptr<StepCosts>> costs =
        loaded->For({.source_vocabulary = 100, .target_vocabulary = 100});
    EXPECT_TRUE(costs.ok()) << costs.status();
    return *std::move(costs);
  }
  // What a run with these files keeps, in a directory of its own.
  CostFiles Kept(const CostFiles& files) {
    run_ = directory_ / absl::StrCat("run", ++runs_);
    EXPECT_TRUE(MakeDirectories(run_).ok());
    const absl::Status stored = StoreCosts(files, run_);
    EXPECT_TRUE(stored.ok()) << stored;
    return StoredCosts(run_);
  }

  const TemporaryDirectory directory_;
  const CostFiles both_{.profile = directory_ / "a_profile", .machine = directory_ / "a_machine"};
  std::string run_;
  int runs_ = 0;
};

TEST_F(CostFilesTest, AProfileSaysWhatIsComputedAndAMachineWhatLiesBetweenItsNodes) {
  const auto profile = CostsOf({.profile = both_.profile}), machine = CostsOf({.machine = both_.machine});
  EXPECT_DOUBLE_EQ(profile->peak_flops(), 1e11);
  EXPECT_DOUBLE_EQ(profile->Link(/*leaves_node=*/true).bytes_per_second, 1e9);
  EXPECT_DOUBLE_EQ(machine->peak_flops(), 2e11);
  EXPECT_DOUBLE_EQ(machine->Link(/*leaves_node=*/true).bytes_per_second, 3e9);
  const auto both = CostsOf(both_);
  EXPECT_DOUBLE_EQ(both->peak_flops(), 1e11);
  EXPECT_DOUBLE_EQ(both->Link(/*leaves_node=*/true).bytes_per_second, 3e9);
}

TEST_F(CostFilesTest, AFileThatIsNotThereIsNamed) {
  const std::string nowhere = directory_ / "nowhere";
  for (const CostFiles& files : {CostFiles{.profile = nowhere}, CostFiles{.machine = nowhere}}) {
    const absl::Status status = LoadCosts(files).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(nowhere), absl::string_view::npos) << status;
  }
  EXPECT_FALSE(StoreCosts({.machine = nowhere}, directory_.path()).ok());
  EXPECT_FALSE(StoreCosts({.profile = nowhere, .machine = both_.machine}, directory_.path()).ok());
}

TEST_F(CostFilesTest, TheFlagsNameTheFiles) {
  CommandLine line("train", "");
  CostFiles files;
  AddCostFlags(line.program(), "for a test", files);
  ASSERT_EQ(line.Run({"--profile", "p", "--machine", "m"}), CommandLine::Outcome::kRan);
  EXPECT_EQ(files.profile, "p");
  EXPECT_EQ(files.machine, "m");
  EXPECT_NE(line.Help().find("configs/machines): for a test"), std::string::npos);
}

TEST_F(CostFilesTest, ARunKeepsTheFilesThatItWasGiven) {
  const CostFiles kept = Kept(both_);
  EXPECT_EQ(kept.profile, run_ + "/profile.textproto");
  EXPECT_EQ(kept.machine, run_ + "/machine.textproto");
  EXPECT_EQ(Contents(kept.profile), Contents(both_.profile));
  EXPECT_EQ(Contents(kept.machine), Contents(both_.machine));
}

TEST_F(CostFilesTest, ARunKeepsNothingElse) {
  EXPECT_TRUE(Kept({}).empty());
  const CostFiles profile = Kept({.profile = both_.profile});
  EXPECT_EQ(Contents(profile.profile), Contents(both_.profile));
  EXPECT_EQ(profile.machine, "");
  const CostFiles machine = Kept({.machine = both_.machine});
  EXPECT_EQ(machine.profile, "");
  EXPECT_EQ(Contents(machine.machine), Contents(both_.machine));
}

}  // namespace
}  // namespace hadal
