#include "launch/train/rank_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hwy/detect_targets.h"
#include "launch/job/device_choice.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<RankFacts> ThreeRanks() {
  std::vector<RankFacts> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back({.rank = rank,
                     .host = rank < 2 ? "n1" : "n2",
                     .instruction_sets = HWY_AVX3 | HWY_AVX2 | HWY_SSE4,
                     .binary_crc32c = 7});
  }
  return ranks;
}

TEST(RankAgreement, AlikeRanksKeepWhatTheyHaveWithoutAWord) {
  const absl::StatusOr<RankAgreement> agreement = Agree(ThreeRanks());
  ASSERT_TRUE(agreement.ok()) << agreement.status();
  EXPECT_EQ(agreement->instruction_sets, HWY_AVX3 | HWY_AVX2 | HWY_SSE4);
  EXPECT_EQ(agreement->notice, "");
}

TEST(RankAgreement, AllTakeTheWidestThatAllHave) {
  std::vector<RankFacts> ranks = ThreeRanks();
  ranks[2].instruction_sets = HWY_AVX2 | HWY_SSE4;
  const absl::StatusOr<RankAgreement> agreement = Agree(ranks);
  ASSERT_TRUE(agreement.ok()) << agreement.status();
  EXPECT_EQ(agreement->instruction_sets, HWY_AVX2 | HWY_SSE4);
  EXPECT_THAT(agreement->notice, AllOf(HasSubstr("all ranks compute with AVX2"), HasSubstr("rank 2 (host n2)")));
}

TEST(RankAgreement, AnotherProgramIsRefusedByRankAndHost) {
  std::vector<RankFacts> ranks = ThreeRanks();
  ranks[1].binary_crc32c = 8;
  const absl::Status status = Agree(ranks).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 1 (host n1)"), HasSubstr("same file")));
}

TEST(RankAgreement, NothingInCommonIsAnError) {
  std::vector<RankFacts> ranks = ThreeRanks();
  ranks[1].instruction_sets = HWY_SSSE3;
  EXPECT_EQ(Agree(ranks).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(RankAgreement, GpusThatAreNotAlikeAreNamed) {
  const std::string h100 = "NVIDIA H100, sm_90", a100 = "NVIDIA A100, sm_80";
  EXPECT_EQ(UnlikeDevices(std::vector{h100}), "");
  EXPECT_EQ(UnlikeDevices(std::vector{h100, h100, h100}), "");
  EXPECT_THAT(UnlikeDevices(std::vector{h100, h100, a100}),
              AllOf(HasSubstr("rank 0: NVIDIA H100"), HasSubstr("rank 2: NVIDIA A100")));
}

}  // namespace
}  // namespace hadal
