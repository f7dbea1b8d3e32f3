#include "tools/train/rank_setup.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "hwy/detect_targets.h"
#include "runtime/data/corpus.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Four ranks, two a host, that may start together: on the CPU unless `gpu`.
class RankSetupTest : public ::testing::Test {
 protected:
  RankSetupTest() {
    for (int rank = 0; rank < 4; ++rank) {
      const std::string host = rank < 2 ? "n0" : "n1";
      RankSetup& facts = ranks_.emplace_back();
      facts.rank = {.rank = rank, .host = host, .instruction_sets = HWY_AVX3 | HWY_AVX2 | HWY_SSE4, .binary_crc32c = 7};
      facts.command = "--run-dir run";
      facts.config_text = "stop { steps: 10 }";
      facts.train = {.contents = "v (1)\na (1)\n", .files = "1:2 "};
      facts.device = {.host = host, .why_none = "no driver", .absent = true};
      facts.plan = rank == 0 ? "a plan" : "";
    }
  }

  void GiveGpus() {
    for (int rank = 0; rank < 4; ++rank) {
      DeviceFacts& device = ranks_[rank].device;
      device = {.host = device.host,
                .name = "H100",
                .identity = "GPU-" + std::to_string(rank),
                .gpu = "GPU " + std::to_string(rank),
                .nccl = 22809};
    }
  }
  absl::StatusOr<CommonSettings> Compare() const { return AgreeOnSettings(ranks_, request_); }
  // The message that there should be.
  std::string Error(absl::StatusCode code) const {
    const absl::Status status = Compare().status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  std::vector<RankSetup> ranks_;
  RequestedSettings request_;
};

TEST_F(RankSetupTest, AlikeRanksStartWithoutAWord) {
  const CommonSettings common = Compare().value();
  EXPECT_EQ(common.instruction_sets, ~InstructionSets{0});
  EXPECT_THAT(common.reads_all, Each(false));
  EXPECT_FALSE(common.gpu || common.nccl);
  EXPECT_THAT(common.notices, IsEmpty());
}

TEST_F(RankSetupTest, SurviveTheTrip) {
  RankSetup& facts = ranks_[0];
  facts.error = absl::DataLossError("torn");
  facts.validation = {.contents = "b (2)\n", .files = "3:4 "};
  facts.device.free_bytes = int64_t{1} << 40;
  facts.relu_masks = false;
  facts.resume = "never";
  facts.sum_groups = 4;
  facts.applied_step = 7;
  facts.predecessor = "an attempt";
  const RankSetup back = Unpack(Pack(facts)).value();
  EXPECT_EQ(Pack(back), Pack(facts));
  EXPECT_EQ(back.error, facts.error);
  EXPECT_EQ(back.device.free_bytes, facts.device.free_bytes);
  EXPECT_EQ(back.plan, "a plan");
  EXPECT_FALSE(back.relu_masks);
  EXPECT_EQ(back.resume, "never");
  EXPECT_EQ(back.sum_groups, 4);
  EXPECT_EQ(back.applied_step, 7);
  EXPECT_EQ(back.predecessor, "an attempt");
  EXPECT_FALSE(Unpack("").ok());
}

TEST_F(RankSetupTest, AnotherProgramIsRefusedByRankAndHostWhateverElseItSent) {
  ranks_[1].rank.binary_crc32c = 8;
  ranks_[2].command = "--run-dir other";
  const std::string bytes = Pack(ranks_[1]);
  ranks_[1] = *Unpack(bytes.substr(0, bytes.size() - 9));
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr("rank 1 (host n0): another hadal than rank 0's on n0"), HasSubstr("same file")));
}

TEST_F(RankSetupTest, OnlyARankWithoutFusedMultiplyAddLimitsTheOthersInstructionSets) {
  ranks_[2].rank.instruction_sets = HWY_AVX2 | HWY_SSE4;
  EXPECT_THAT(Compare().value().notices, IsEmpty());
  EXPECT_EQ(Compare().value().instruction_sets, ~InstructionSets{0});
  ranks_[2].rank.instruction_sets = HWY_SSE4;
  EXPECT_EQ(Compare().value().instruction_sets, HWY_SSE4);
  EXPECT_THAT(Compare().value().notices,
              ElementsAre(AllOf(HasSubstr("all ranks compute with SSE4"), HasSubstr("rank 2 (host n1)"))));
  for (RankSetup& facts : ranks_) facts.rank.instruction_sets = HWY_SSE4;
  EXPECT_THAT(Compare().value().notices, IsEmpty()) << "nodes of one kind";
  ranks_[1].rank.instruction_sets = 0;
  EXPECT_THAT(Error(absl::StatusCode::kInternal), HasSubstr("none of the kernels' instruction sets"));
}

TEST_F(RankSetupTest, ARanksOwnErrorNamesAllRanksThatHaveIt) {
  ranks_[1].error = ranks_[3].error = absl::NotFoundError("there is no data/train.json");
  ranks_[2].error = absl::InternalError("something later");
  EXPECT_EQ(Error(absl::StatusCode::kNotFound), "ranks 1, 3 (hosts n0, n1): there is no data/train.json");
  for (RankSetup& facts : ranks_) facts.error = absl::InvalidArgumentError("model.heads = 5");
  EXPECT_EQ(Error(absl::StatusCode::kInvalidArgument), "model.heads = 5") << "nobody is to be named";
}

TEST_F(RankSetupTest, AnotherCommandLine) {
  ranks_[2].command = ranks_[3].command = "--run-dir elsewhere";
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr("ranks 2, 3 (host n1): another command line than rank 0's on n0"),
                    HasSubstr("rank 2 was started with --run-dir elsewhere, rank 0 with --run-dir run")));
}

TEST_F(RankSetupTest, OtherSettings) {
  ranks_[3].config_text = "stop { steps: 20 } learning_rate { peak: 0.1 }";
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr("rank 3 (host n1): other settings than rank 0's on n0 (rank 0's -> rank 3's):"),
                    HasSubstr("\n  stop.steps: 10 -> 20\n"), HasSubstr("learning_rate.peak: ")));
}

TEST_F(RankSetupTest, AnotherCorpusIsToldByTheFirstFileThatDiffers) {
  ranks_[2].train.contents = ranks_[3].train.contents = "v (1)\nb (2)\n";
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              HasSubstr("data.train: ranks 2, 3 (host n1): another corpus than rank 0's on n0: rank 2 has b (2), rank "
                        "0 has a (1); "));
  ranks_[2].train = ranks_[3].train = ranks_[0].train;
  ranks_[1].validation.contents = "v (1)\n";
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              HasSubstr("data.validation: rank 1 (host n0): another corpus than rank 0's on n0: rank 1 has v (1), rank "
                        "0 has no more than 0 files"));
}

// What one rank of a host has read does not verify the other's copy.
TEST_F(RankSetupTest, RanksWithPrivateCopiesOnOneHostReadAll) {
  ranks_[2].train.files = ranks_[3].train.files = "8:9 ";
  EXPECT_THAT(Compare()->reads_all, Each(false)) << "a copy a host";
  ranks_[3].train.files = "8:10 ";
  EXPECT_THAT(Compare()->reads_all, ElementsAre(false, false, true, true));
  ranks_[0].validation.files = "1:1 ";
  EXPECT_THAT(Compare()->reads_all, Each(true));
}

TEST_F(RankSetupTest, OneRankWithoutAGpuDoesNotLeaveTheOthersIdle) {
  GiveGpus();
  ranks_[2].device.why_none = "no GPU is visible";
  EXPECT_THAT(Error(absl::StatusCode::kInternal),
              AllOf(HasSubstr("rank 2 (host n1): no GPU is visible"), HasSubstr("other ranks can use a GPU")));
  request_.device.kind = "cuda";
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument), HasSubstr("--device cuda: rank 2 (host n1): no GPU is visib"));
  request_.device.kind = "cpu";
  EXPECT_FALSE(Compare()->gpu);
  request_.precision = TrainingPrecision::kBf16;
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument), HasSubstr("\"bf16\" needs a GPU, but --device is cpu"));
}

TEST_F(RankSetupTest, AllOnGpusOfTheirOwnByNccl) {
  GiveGpus();
  const CommonSettings common = Compare().value();
  EXPECT_TRUE(common.gpu && common.nccl);
  EXPECT_EQ(common.compute_storage, Storage::kBFloat16);
  EXPECT_THAT(common.notices, ElementsAre("training on H100, products in bf16", HasSubstr("by NCCL 2.28.9")));
  request_.transport = Transport::kHost;
  EXPECT_FALSE(Compare()->nccl);
  request_.transport = Transport::kAuto;
  ranks_[2].device.name = "A100";
  EXPECT_THAT(Compare()->notices[0],
              AllOf(HasSubstr("not alike"), HasSubstr("rank 0: H100"), HasSubstr("rank 2: A100")));
}

TEST_F(RankSetupTest, CpusBesideIdleGpusAreTold) {
  EXPECT_THAT(Compare()->notices, IsEmpty());
  ranks_[3].device.absent = false;
  EXPECT_THAT(Compare()->notices, ElementsAre(HasSubstr("on the CPU: rank 0 (host n0): no driver")));
}

// Writes a corpus of several shards; `first` makes it another one of the same size.
void Store(const std::string& directory, int32_t first = 5) {
  std::filesystem::create_directories(directory);
  CorpusWriter writer = *CorpusWriter::Create({.prefix = directory + "/train",
                                               .source_vocabulary = {"vocabulary.model", 100, 17},
                                               .target_vocabulary = {"target.model", 90, 18},
                                               .corpora = {directory},
                                               .shard_bytes = 400});
  for (int32_t i = 0; i < 60; ++i) {
    const Sample sample{.source = {first, 5 + i, 6}, .target = {7, 8}};
    ASSERT_TRUE(writer.Add(sample.view()).ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
}

TEST(CorpusFacts, TellFilesAndTheirPlace) {
  const TemporaryDirectory directory;
  Store(directory / "one");
  Store(directory / "copy");  // of another name: what its text was called does not matter
  Store(directory / "other", 4);
  const auto facts = [&](const std::string& name) {
    const std::string prefix = directory / name + "/train";
    return FactsOf(prefix, *Corpus::Open(prefix));
  };
  EXPECT_EQ(facts("one").files, facts("one").files);
  EXPECT_NE(facts("one").files, facts("copy").files);
  EXPECT_EQ(facts("one").contents, facts("copy").contents);
  EXPECT_NE(facts("one").contents, facts("other").contents);
  EXPECT_THAT(facts("one").contents, HasSubstr("\ntarget.model (90 ids, checksum 00000012)\ntrain.00000.shard ("));
}

}  // namespace
}  // namespace hadal
