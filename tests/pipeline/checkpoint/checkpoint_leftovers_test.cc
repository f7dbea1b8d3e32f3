// Which names in RUN/checkpoints are a killed attempt's, and what becomes of them. Claims that do the same:
// checkpoint_test.cc, checkpoint_directory_test.cc.
#include "pipeline/checkpoint/checkpoint_directory.h"

#include "gmock/gmock.h"
#include "runtime/files.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

// An attempt's name as NewCheckpointAttempt makes them.
constexpr char kKilled[] = "6921b5aa-1f3c-09abcdef";
constexpr char kMine[] = "6921b5bb-2a-00000001";

class CheckpointLeftoversTest : public ::testing::Test {
 protected:
  CheckpointLeftoversTest() { std::filesystem::create_directories(checkpoints_); }

  // With something in it.
  void MakeDirectory(const std::string& name) const {
    std::filesystem::create_directory(JoinPath(checkpoints_, name));
    SetContents(JoinPath(checkpoints_, name) + "/manifest.json", name);
  }
  void MakeFile(const std::string& name) const { SetContents(JoinPath(checkpoints_, name), "x"); }
  std::vector<std::string> Names() const { return ListDirectory(checkpoints_).value(); }

  const TemporaryDirectory run_;
  const std::string checkpoints_ = run_ / "checkpoints";
};

TEST_F(CheckpointLeftoversTest, RemovesFilesOfKilledAttempts) {
  for (const std::string name : {"step_00000006.tmp.", "step_00000007.tmp.removed."}) MakeDirectory(name + kKilled);
  MakeDirectory("step_00000007.tmp.removed");
  MakeDirectory("step_123456789.tmp.removed");
  for (const std::string name : {"latest.", "best.", "attempt."}) {
    MakeFile(name + kKilled);
    MakeFile(name + kKilled + ".2");
    MakeFile(name + kKilled + ".10");
  }
  EXPECT_EQ(RemoveLeftovers(run_.path(), kMine), absl::OkStatus());
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(CheckpointLeftoversTest, RemovesPartlyRenamedFilesOfTheRunDirectory) {
  for (const std::string name : {"metrics.jsonl.", "config.resolved.textproto."}) {
    SetContents(run_ / (name + kKilled), "x");
    SetContents(run_ / (name + "mine"), "x");
  }
  SetContents(run_ / "metrics.jsonl", "x");
  EXPECT_EQ(RemoveLeftovers(run_.path(), kMine), absl::OkStatus());
  EXPECT_THAT(*ListDirectory(run_.path()),
              ElementsAre("checkpoints", "config.resolved.textproto.mine", "metrics.jsonl", "metrics.jsonl.mine"));
}

// … also a link to a directory, which stays.
TEST_F(CheckpointLeftoversTest, RemovesALinkAndNotItsTarget) {
  MakeDirectory("step_00000005");
  std::filesystem::create_directory_symlink("step_00000005", JoinPath(checkpoints_, std::string("latest.") + kKilled));
  std::filesystem::create_directory_symlink("step_00000005", JoinPath(checkpoints_, "latest"));
  EXPECT_EQ(RemoveLeftovers(run_.path(), kMine), absl::OkStatus());
  EXPECT_THAT(Names(), ElementsAre("latest", "step_00000005"));
  EXPECT_EQ(Contents(checkpoints_ + "/step_00000005/manifest.json"), "step_00000005");
}

// Each but a letter from a leftover's name.
TEST_F(CheckpointLeftoversTest, KeepsFilesWithOtherNames) {
  const std::string killed = kKilled;
  const std::vector<std::string> no_attempts = {"mine",
                                                "6921b5aa-1f3c",
                                                killed + "-0",
                                                "6921b5aa-1f3c-9abcdef",
                                                "6921b5aa-1f3c-009abcdef",
                                                "6921b5aa-1f3c-09abcdeg",
                                                "6921B5AA-1F3C-09ABCDEF",
                                                "-1f3c-09abcdef",
                                                "6921b5aa--09abcdef"};
  std::vector<std::string> names = {"step_00000005",
                                    "step_00000005.tmp.removed." + killed + ".old",
                                    "step_00000005.tmp.removedx",
                                    "step_00000005.tmp.removed-" + killed,
                                    "step_5.tmp." + killed,
                                    "notes.tmp." + killed,
                                    "step_00000004.abandoned." + killed,
                                    "notes.replaced." + killed};
  for (const std::string& name : no_attempts) {
    for (const char* const before : {".tmp.", ".tmp.removed.", ".replaced."}) {
      names.push_back("step_00000005" + (before + name));
    }
  }
  for (const std::string& name : names) MakeDirectory(name);
  MakeDirectory("best." + killed);
  MakeFile("step_00000006.tmp." + killed);
  std::vector<std::string> files = {"latest", "best." + killed + ".txt", "best." + killed + ".2.txt",
                                    "best." + killed + ".", "worst." + killed};
  for (const std::string& name : no_attempts) files.push_back("best." + name);
  for (const std::string& name : files) MakeFile(name);

  std::vector<std::string> all = names;
  all.insert(all.end(), files.begin(), files.end());
  all.push_back("best." + killed);
  all.push_back("step_00000006.tmp." + killed);
  EXPECT_EQ(RemoveLeftovers(run_.path(), kMine), absl::OkStatus());
  EXPECT_THAT(Names(), UnorderedElementsAreArray(all));
  for (const std::string& name : names) EXPECT_EQ(Contents(checkpoints_ + "/" + name + "/manifest.json"), name);
}

TEST_F(CheckpointLeftoversTest, MovesReplacedCheckpointsBackUnlessANewOneExists) {
  const std::string first = std::string("step_00000005.replaced.") + kKilled;
  const std::string second = std::string("step_00000006.replaced.") + kKilled;
  MakeDirectory(first);
  MakeDirectory(second);
  MakeDirectory("step_00000006");
  EXPECT_EQ(RemoveLeftovers(run_.path(), kMine), absl::OkStatus());
  EXPECT_THAT(Names(), ElementsAre("step_00000005", "step_00000006"));
  EXPECT_EQ(Contents(checkpoints_ + "/step_00000005/manifest.json"), first) << "it came back";
  EXPECT_EQ(Contents(checkpoints_ + "/step_00000006/manifest.json"), "step_00000006") << "the newer one stays";
}

TEST_F(CheckpointLeftoversTest, ReturnsAnErrorWithoutCheckpoints) {
  EXPECT_EQ(RemoveLeftovers(run_ / "nowhere", kMine).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hadal
