#include "tools/train/train_start.h"

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "launch/exit_code.h"
#include "runtime/data/corpus.h"
#include "runtime/run_directory.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_plan.h"
#include "tests/tools/config/parsed_config.h"
#include "tools/checkpoint/checkpoint_vocabularies.h"
#include "tools/train/resume.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSettings[] = "learning_rate { peak: 1e-3 } stop { steps: 20 }";

// What a run of a directory with checkpoints of steps 5 and 10 begins at.
class TrainStartTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const int64_t step : {5, 10}) SaveOf(kSettings, step);
    arguments_.run_directory = run();
  }

  void SaveOf(const std::string& settings, int64_t step) const {
    CheckpointCommitter committer = SmallCommitter(run());
    SmallState state(SmallParameters(), 1);
    ASSERT_EQ(Save(committer, state, {.step = step, .ranks = 1, .config_text = settings}).status(), absl::OkStatus());
  }

  std::string run() const { return directory_ / "run"; }
  std::string Checkpoint(int64_t step) const { return CheckpointsDirectory(run()) + "/" + CheckpointName(step); }
  void Damage(int64_t step) const { std::filesystem::remove(Checkpoint(step) + "/rank_00000.safetensors"); }
  // The checkpoint that is chosen; "" for none.
  absl::StatusOr<std::string> Find(const std::string& settings = kSettings) {
    const absl::StatusOr<FoundCheckpoint> found =
        ChooseResume(arguments_, arguments_.resume, before_step_, Parsed(settings), model_, sinks_);
    if (absl::IsNotFound(found.status())) return std::string();
    if (!found.ok()) return found.status();
    EXPECT_EQ(found->checkpoint.step, found->manifest.progress.step);
    return found->checkpoint.directory;
  }
  // What was printed for the user.
  std::string Told() {
    sinks_.LogEnd(kExitDone, absl::OkStatus());
    return Contents(run() + "/logs/rank_00000.log");
  }

  const TemporaryDirectory directory_;
  TrainArguments arguments_;
  int64_t before_step_ = std::numeric_limits<int64_t>::max();
  std::vector<CheckpointParameter> model_ = SmallParameters();
  TrainingSinks sinks_{{.rank = 0, .ranks = 1}, directory_ / "run"};
};

TEST_F(TrainStartTest, TheNewestUnlessAnotherIsNamed) {
  EXPECT_EQ(*Find(), Checkpoint(10));
  arguments_.resume = Checkpoint(5);
  EXPECT_EQ(*Find(), Checkpoint(5));
  arguments_.resume = "auto";
  arguments_.run_directory = directory_ / "another";
  EXPECT_EQ(*Find(), "") << "none is there";
}

TEST_F(TrainStartTest, AnOlderOneOnceRanksHaveRefusedTheNewest) {
  before_step_ = 10;
  EXPECT_EQ(*Find(), Checkpoint(5));
  before_step_ = 5;
  EXPECT_EQ(*Find(), "");
}

TEST_F(TrainStartTest, ADamagedOneIsPassedOverUntilNoneIsLeft) {
  Damage(10);
  EXPECT_EQ(*Find(), Checkpoint(5));
  Damage(5);
  EXPECT_EQ(Find().status().code(), absl::StatusCode::kDataLoss) << "never a silent new start";
}

TEST_F(TrainStartTest, ChangedSettingsAreAskedAbout) {
  constexpr char kChanged[] = "learning_rate { peak: 2e-3 } stop { steps: 20 }";
  const absl::Status status = Find(kChanged).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr(Checkpoint(10)), HasSubstr("learning_rate.peak: 0.001 -> "), HasSubstr("Give --accept-changes")));
  arguments_.accept_changes = true;
  EXPECT_EQ(*Find(kChanged), Checkpoint(10));
  CheckpointManifest manifest = CheckpointReader::Open(Checkpoint(10))->manifest();
  manifest.progress.loss_trend = {.losses = 9, .mean = 2, .variance = 1};
  SetContents(Checkpoint(10) + "/manifest.json", manifest.ToString());
  const auto losses = [this](const std::string& settings) {
    return ChooseResume(arguments_, arguments_.resume, before_step_, Parsed(settings), model_, sinks_)
        ->manifest.progress.loss_trend.losses;
  };
  EXPECT_EQ(losses(kSettings), 9);
  EXPECT_EQ(losses(kChanged), 0) << "of other settings";
  EXPECT_THAT(Told(), AllOf(HasSubstr("with changed settings"), HasSubstr("learning_rate.peak: 0.001 -> ")));
}

TEST_F(TrainStartTest, TheCheckpointsGroupsIfTheReplicasDivideThem) {
  const auto groups = [this](int32_t replicas, int32_t asked = 0) {
    return SumGroupsOf(arguments_, arguments_.StartRequest(),
                       {.batch = {.sum_groups = asked}, .pipeline = {.replicas = replicas}});
  };
  EXPECT_EQ(groups(2), 2) << "the checkpoint's one replica had one group";
  SaveOf("pipeline { replicas: 3 }", 15);  // older: no groups, and 3 replicas were added as now
  EXPECT_EQ(groups(1), 1);
  EXPECT_EQ(groups(3), 3);
  SaveOf("pipeline { replicas: 3 } batch { sum_groups: 12 }", 20);
  EXPECT_EQ(groups(6), 12);
  EXPECT_EQ(groups(4), 4);
  EXPECT_EQ(groups(6, 24), 24);
  SaveOf("learning_rate { peak: 1e-3 } stop { steps: 20 } pipeline { replicas: 4 }", 25);  // older, in another order
  EXPECT_EQ(groups(4), 4);
  EXPECT_THAT(std::string(Find("batch { sum_groups: 4 }").status().message()), HasSubstr("batch.sum_groups: 0 -> 4"));
}

// The checkpoints of these tests do not say what was read.
TEST_F(TrainStartTest, AnOlderCheckpointsPlaceNeedsItsSettings) {
  arguments_.accept_changes = true;
  for (const std::string changed : {"batch { micro_batches: 2 }", "batch { source_tokens: 9 }", "seed: 5",
                                    "data { sampling_temperature: 2 }", "model { max_positions: 9 }"}) {
    const std::string settings = std::string(kSettings) + " " + changed;
    arguments_.reset = {};
    EXPECT_THAT(std::string(Find(settings).status().message()),
                AllOf(HasSubstr("does not say what was read of the training data, and "), HasSubstr("--reset data")))
        << changed;
    arguments_.reset = {"data"};
    EXPECT_EQ(*Find(settings), Checkpoint(10)) << changed;
  }
}

TEST_F(TrainStartTest, ARunOfAnotherVersionIsNotResumed) {
  std::filesystem::remove_all(run());
  CheckpointCommitter committer = SmallCommitter(run());
  SmallState state(SmallParameters(), 1);
  ASSERT_TRUE(Save(committer, state, {.step = 5, .ranks = 1, .config_text = "pipeline { checkpoint_every: 2 }"}).ok());
  const absl::Status status = Find().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(Checkpoint(5)), HasSubstr("recompute_every"),
                                                   HasSubstr("another version of hadal"), HasSubstr("--resume never")));
}

TEST_F(TrainStartTest, OneCheckpointIsNamedToBeginFrom) {
  arguments_.init_from = "elsewhere";
  EXPECT_EQ(*Find(), Checkpoint(10)) << "a run that has begun goes on";
  arguments_.resume = Checkpoint(5);
  const absl::Status status = Find().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(Checkpoint(5)), HasSubstr("--init-from elsewhere")));
}

TEST(FrozenParametersTest, AreThoseWhoseNamesAPatternMatches) {
  const ModelPlan plan = TinyPlan();
  const std::vector<bool> frozen = FrozenParameters(plan, {"encoder.layers.*", "decoder.*.fc?.bias"}).value();
  for (int32_t p = 0; p < static_cast<int32_t>(frozen.size()); ++p) {
    const std::string name = plan.ParameterName(p);
    const bool matches = name.starts_with("encoder.layers.") ||
                         (name.starts_with("decoder.") && (name.ends_with(".fc1.bias") || name.ends_with(".fc2.bias")));
    EXPECT_EQ(frozen[p], matches) << name;
  }
  EXPECT_TRUE(FrozenParameters(plan, {})->empty());
  EXPECT_THAT(std::string(FrozenParameters(plan, {"decoder.*", "encoder.layer.*"}).status().message()),
              HasSubstr("\"encoder.layer.*\"; did you mean \"encoder.layers.*\"?"));
  EXPECT_THAT(std::string(FrozenParameters(plan, {"xyzzy"}).status().message()), HasSubstr("--parameters"));
  EXPECT_THAT(std::string(FrozenParameters(plan, {"*"}).status().message()), HasSubstr("nothing is left to train"));
}

TEST_F(TrainStartTest, NothingIsOfferedForAnotherModel) {
  model_.pop_back();
  const absl::Status status = Find("learning_rate { peak: 2e-3 } stop { steps: 20 }").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("learning_rate.peak: 0.001 -> "), HasSubstr("It cannot: the checkpoint is of another model"),
            HasSubstr("Give the settings of before, --resume never"), Not(HasSubstr("--accept-changes"))));
}

TEST_F(TrainStartTest, AnotherVocabularyIsNamedWithItsNewTokensOrTheRemedy) {
  const auto said = [this](const std::string& before, const std::string& name, const std::string& text) {
    std::filesystem::remove_all(run());
    CheckpointCommitter committer = SmallCommitter(run());
    SmallState state(SmallParameters(), 1);
    EXPECT_TRUE(Save(committer, state, {.ranks = 1, .vocabulary = before}).ok());
    FoundCheckpoint found = FindLatest(run(), {}).value();
    std::string& file = found.manifest.attachments[0].name;
    std::filesystem::rename(Checkpoint(5) + "/" + file, Checkpoint(5) + "/" + name);
    file = name;
    const Vocabulary now = Vocabulary::Parse(text, "corpus/" + name).value();
    CorpusManifest corpus;
    corpus.source_vocabulary = corpus.target_vocabulary = {"corpus/" + name, now.size(), now.crc32c()};
    std::string growth;
    const absl::Status status = CheckVocabularies(found, corpus, {now, now}, &growth);
    return status.ok() ? growth : std::string(status.message());
  };
  EXPECT_EQ(said("a 1\nb 1\n", "vocabulary.txt", "b 1\na 1\n"),
            "rows go by token; the vocabulary has the same tokens at other ids");
  EXPECT_THAT(said("a 1\nb 1\n", "vocabulary.txt", "a 1\nc 1\n"), HasSubstr("`hadal prepare --vocab`, "));
  EXPECT_THAT(
      said(R"({"model": {"vocab": {"a": 0}}})", "tokenizer.json", R"({"model": {"vocab": {"b": 0}}})"),
      HasSubstr("`hadal prepare --monolingual --tokenizer`, --end-token: " + Checkpoint(5) + "/tokenizer.json"));
}

TEST_F(TrainStartTest, WhatAResumedRunMayChangeIsNot) {
  EXPECT_EQ(*Find("learning_rate { peak: 1e-3 } stop { steps: 30 }"), Checkpoint(10));
  EXPECT_THAT(Told(), Not(HasSubstr("settings")));
}

// The first rank of a host has not read the shards with odd numbers, nor the second the others.
TEST_F(TrainStartTest, WhereItMustARankReadsItsCorpusInFull) {
  const std::string prefix = directory_ / "train";
  CorpusWriter writer = *CorpusWriter::Create({.prefix = prefix,
                                               .source_vocabulary = {"vocabulary.model", 100, 17},
                                               .target_vocabulary = {"vocabulary.model", 100, 17},
                                               .corpora = {"text"},
                                               .shard_bytes = 400});
  for (int32_t i = 0; i < 60; ++i) {
    ASSERT_TRUE(writer.Add(Sample{.source = {5, 5 + i, 6}, .target = {7, 8}}.view()).ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
  const std::string shard = prefix + ".00000.shard";
  FlipBit(shard, std::filesystem::file_size(shard) - 4);  // of a token, in what the first rank reads
  PreparedRun run;
  run.options.train.train_data = prefix;
  run.train = *Corpus::Open(prefix, {.process = 1, .processes = 2});
  CommonSettings common{.instruction_sets = AvailableInstructionSets(), .reads_all = {false, true}};
  EXPECT_EQ(ApplySettings(common, /*rank=*/0, run), absl::OkStatus());
  const absl::Status status = ApplySettings(common, /*rank=*/1, run);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(shard));
}

// How a run lies on its ranks; whole grids and devices: train_command_test.sh, gpu_ranks_test.sh.
constexpr int64_t kFreeBytes = int64_t{1} << 30;

class TrainLayoutTest : public ::testing::Test {
 protected:
  TrainLayoutTest() {
    ranks_[0].rank.available_bytes = kFreeBytes;
    options_.model = TinyModel({.encoder_layers = 2, .decoder_layers = 2, .d_model = 16, .d_ff = 32, .heads = 2});
    options_.batch = {.micro_batches = 2, .source_tokens = 32, .target_tokens = 32};
  }
  absl::StatusOr<RunLayout> LayOut() {
    ranks_[0].plan = ModelPlan::Make(options_.model).Serialize();
    return LayOutRun(arguments_, options_, ranks_, common_, /*rank=*/0, Stream::Cpu(1));
  }

  TrainArguments arguments_;
  TrainOptions options_;
  std::vector<RankSetup> ranks_{1};
  CommonSettings common_;
};

TEST_F(TrainLayoutTest, TheWholeModelOnOneRank) {
  const RunLayout layout = LayOut().value();
  EXPECT_EQ(layout.plan.Hash(), ModelPlan::Make(options_.model).Hash());
  EXPECT_EQ(layout.pipeline.grid.stages, 1);
  EXPECT_EQ(layout.pipeline.borders.back(), static_cast<int32_t>(layout.plan.sublayers.size()));
  EXPECT_EQ(layout.stream.device(), nullptr);
  EXPECT_FALSE(layout.resources.device_transfers);
  EXPECT_TRUE(layout.pipeline.shape.free_links);
  EXPECT_EQ(layout.resources.memory_limit_bytes, kFreeBytes) << "what the host has free";
}

TEST_F(TrainLayoutTest, TheLimitIsTheLeastShareOfAHostOrADevice) {
  ranks_.resize(2);
  ranks_[0].rank = {.rank = 0, .ranks_on_host = 2, .available_bytes = kFreeBytes};
  ranks_[1].rank = {.rank = 1, .ranks_on_host = 2, .available_bytes = kFreeBytes - 1000};
  EXPECT_EQ(LayOut()->resources.memory_limit_bytes, kFreeBytes / 2 - 500);
  common_.gpu = common_.nccl = true;
  ranks_[0].device = {.identity = "GPU-0", .free_bytes = 8 * kFreeBytes};
  ranks_[1].device = {.identity = "GPU-1", .free_bytes = 1000};
  const absl::Status status = LayOut().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("GPU-1 has 0 MiB free for 1 rank(s)"));
}

// Ranks with unlike GPUs lay out the same.
TEST_F(TrainLayoutTest, TheFirstRanksDeviceDecidesOnMasks) {
  ranks_.resize(2);
  common_.compute_storage = Storage::kBFloat16;
  for (const bool first_has : {true, false}) {
    ranks_[0].relu_masks = first_has;
    ranks_[1].relu_masks = !first_has;
    EXPECT_EQ(LayOut()->plan.relu_masks, first_has);
  }
}

TEST_F(TrainLayoutTest, TheLimitThatTheConfigSetsHolds) {
  options_.pipeline.memory_limit_bytes = int64_t{1} << 40;
  ASSERT_TRUE(LayOut().ok());
  EXPECT_EQ(LayOut()->resources.memory_limit_bytes, int64_t{1} << 40);
  options_.pipeline.memory_limit_bytes = 1 << 10;
  const absl::Status status = LayOut().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the limit is 1024 bytes"));
  ranks_[0].rank.threads = 64;
  EXPECT_NE(LayOut().status(), status) << "all ranks need what the one of most threads does";
}

TEST_F(TrainLayoutTest, APipelineThatCannotBeCutSoIsToldWithWhoWantsIt) {
  const TemporaryDirectory directory;
  SetContents(directory / "run.textproto", "pipeline { stages: 3 }");
  arguments_.config.files = {directory / "run.textproto"};
  options_.pipeline.stages = 3;
  const absl::Status status = LayOut().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("1 rank was started"), HasSubstr("run.textproto:1:12: pipeline.stages = 3")));
}

}  // namespace
}  // namespace hadal
