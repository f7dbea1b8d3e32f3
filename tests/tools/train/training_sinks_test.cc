#include "tools/train/training_sinks.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "launch/exit_code.h"
#include "runtime/data/corpus.h"
#include "runtime/data/vocabulary.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tools/config/config_loading.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainingSinksTest : public ::testing::Test {
 protected:
  std::string run() const { return directory_ / "run"; }
  std::string Log() const { return Contents(run() + "/logs/rank_00003.log"); }

  const TemporaryDirectory directory_;
  TrainingSinks sinks_{{.version = "0.1.0", .rank = 3, .ranks = 8}, directory_ / "run"};
};

TEST_F(TrainingSinksTest, AnErrorBeforeTheLogIsOpenIsLogged) {
  sinks_.Tell("warning: the driver is old");
  sinks_.LogEnd(kExitError, absl::ResourceExhaustedError("the GPU is full"));
  EXPECT_THAT(Log(),
              AllOf(HasSubstr("Z start: hadal 0.1.0, rank 3 of 8 on "), HasSubstr("Z warning: the driver is old\n"),
                    HasSubstr("Z end: exit code 1: the GPU is full\n"), Not(HasSubstr("stage"))));
}

TEST_F(TrainingSinksTest, AConfigErrorMakesNoRunDirectory) {
  sinks_.LogEnd(kExitUsage, absl::InvalidArgumentError("model.heads = 7 is not allowed"));
  EXPECT_FALSE(std::filesystem::exists(run()));
}

TEST_F(TrainingSinksTest, AConfigErrorIsLoggedInARunDirectoryThatIsThere) {
  std::filesystem::create_directory(run());
  sinks_.LogEnd(kExitUsage, absl::InvalidArgumentError("model.heads = 7 is not allowed"));
  EXPECT_THAT(Log(), HasSubstr("Z end: exit code 2: model.heads = 7 is not allowed\n"));
}

TEST_F(TrainingSinksTest, NothingIsLoggedInACheckpointOrAmongARunsFiles) {
  std::filesystem::create_directories(run() + "/tb");
  SetContents(run() + "/manifest.json", "{}");
  SetContents(run() + "/rank_00000.safetensors", "");
  EXPECT_THAT(std::string(CheckRunDirectory(run()).message()), HasSubstr("give --init-from " + run()));
  sinks_.LogEnd(kExitUsage, CheckRunDirectory(run()));
  EXPECT_FALSE(std::filesystem::exists(run() + "/logs"));
  std::filesystem::create_directories(run() + "/checkpoints");
  EXPECT_EQ(CheckRunDirectory(run()), absl::OkStatus()) << "a run of an older version is resumed";
  std::filesystem::rename(run() + "/manifest.json", run() + "/metrics.jsonl");
  TrainingSinks({.rank = 3, .ranks = 8}, run() + "/tb").LogEnd(kExitUsage, CheckRunDirectory(run() + "/tb"));
  EXPECT_TRUE(std::filesystem::is_empty(run() + "/tb"));
  EXPECT_EQ(CheckRunDirectory(run()), absl::OkStatus());
}

TEST_F(TrainingSinksTest, WhereNothingCanBeWrittenNothingIs) {
  SetContents(run(), "a file");
  sinks_.LogEnd(kExitError, absl::ResourceExhaustedError("the GPU is full"));
  EXPECT_EQ(Contents(run()), "a file");
}

TEST_F(TrainingSinksTest, AnAttemptThatIsKeptOutWritesNothing) {
  std::filesystem::create_directory(run());
  sinks_.LogEnd(kExitError, absl::AbortedError("run is in use by another attempt"));
  EXPECT_TRUE(std::filesystem::is_empty(run()));
}

TEST_F(TrainingSinksTest, AnOpenLogSaysWhichPartTheRankHasAndWhichAttempt) {
  ASSERT_TRUE(sinks_.Open({.stages = 4, .replicas = 2}, "", 0, "6921b5aa-1f3c-09abcdef").ok());
  EXPECT_THAT(Log(), AllOf(HasSubstr("rank 3 of 8 (stage 1 of 4, replica 1 of 2) on "),
                           HasSubstr(", attempt 6921b5aa-1f3c-09abcdef, ")));
}

// Stopped between its claim and the opening of its files, while another attempt claims.
TEST_F(TrainingSinksTest, AnAttemptThatHasLostTheDirectoryReplacesNoMetrics) {
  TrainingSinks late({.rank = 0}, run());
  CheckpointCommitter next = SmallCommitter(run());
  SetContents(run() + "/metrics.jsonl", "the next attempt's\n");
  EXPECT_TRUE(absl::IsAborted(late.Open({}, "", 1, "6921b5aa-1f3c-09abcdef")));
  EXPECT_EQ(Contents(run() + "/metrics.jsonl"), "the next attempt's\n");
  EXPECT_FALSE(std::filesystem::exists(run() + "/metrics.jsonl.6921b5aa-1f3c-09abcdef"));
}

TEST_F(TrainingSinksTest, TheFirstRankShowsItsConfigInTensorBoard) {
  const std::string attempt = "6921b5aa-1f3c-09abcdef";
  TrainingSinks sinks({.rank = 0, .ranks = 1}, run());
  ASSERT_TRUE(CheckpointCommitter({.run_directory = run(), .attempt = attempt}).Claim().ok());
  ASSERT_TRUE(sinks.Open({}, "seed: 7\n", 1, attempt).ok());
  sinks.sink().OnStart({});
  std::string events;
  for (const auto& file : std::filesystem::directory_iterator(run() + "/tb")) events += Contents(file.path().string());
  EXPECT_THAT(events, AllOf(HasSubstr("config"), HasSubstr("seed: 7")));
}

// Restarts of a job recognise by it what has been done.
TEST(TrainArguments, TheRequestOfTheStartNamesWhatIsReset) {
  TrainArguments arguments;
  arguments.resume = "auto";
  arguments.reset = {"data", "best"};
  EXPECT_EQ(arguments.StartRequest(), "auto --reset best --reset data");
}

TEST_F(TrainingSinksTest, NoTimelineUnlessAsked) { EXPECT_FALSE(sinks_.MakeTraceRequest("", {.steps = 10})->wanted()); }

TEST_F(TrainingSinksTest, ATimelineUpToTheLastStepOfTheRunAndNotBeyond) {
  const TraceRequest request = sinks_.MakeTraceRequest("steps=7-10", {.steps = 10}).value();
  EXPECT_EQ(request.first_step, 7);
  EXPECT_EQ(request.last_step, 10);
  EXPECT_TRUE(sinks_.MakeTraceRequest("steps=7-1000", {.minutes = 1}).ok()) << "nobody knows its last step";
  const absl::Status status = sinks_.MakeTraceRequest("steps=7-11", {.steps = 10}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("--trace steps=7-11"), HasSubstr("last step is 10")));
  EXPECT_EQ(sinks_.MakeTraceRequest("steps", {.steps = 10}).status().code(), absl::StatusCode::kInvalidArgument);
}

class TrainPreparationTest : public ::testing::Test {
 protected:
  TrainPreparationTest() : words_(*Vocabulary::FromTokens({"a", "b", "c"})), others_(*Vocabulary::FromTokens({"x"})) {
    arguments_.run_directory = directory_ / "run";
    Configure("data { train: \"" + directory_ / "train" + "\" }");
  }

  // A corpus of one sentence, of vocabularies that lie beside it.
  void StoreCorpus(const std::string& name, const Vocabulary& source, const Vocabulary& target,
                   const InputKind& inputs = {}) {
    const auto stored = [&](const Vocabulary& vocabulary) {
      const std::string file = std::to_string(vocabulary.crc32c()) + std::string(vocabulary.extension());
      EXPECT_TRUE(vocabulary.Save(directory_ / file).ok());
      return VocabularyReference{file, vocabulary.size(), vocabulary.crc32c()};
    };
    CorpusWriter writer = *CorpusWriter::Create({.prefix = directory_ / name,
                                                 .source_vocabulary = stored(source),
                                                 .target_vocabulary = stored(target),
                                                 .corpora = {name},
                                                 .inputs = inputs});
    const Sample sample{.source = {4}, .target = {4}};
    ASSERT_TRUE(writer.Add(sample.view()).ok());
    ASSERT_TRUE(writer.Finish().ok());
  }
  // One config file: a small model, and `text`.
  void Configure(const std::string& text) {
    SetContents(directory_ / "run.textproto", "model { d_model: 16 d_ff: 32 heads: 2 }\nstop { steps: 10 }\n" + text);
    arguments_.config.files = {directory_ / "run.textproto"};
  }
  absl::StatusOr<PreparedRun> Prepare() const {
    return PrepareRun(arguments_, LoadConfig(arguments_.config.files, arguments_.config.overrides), {});
  }
  std::string Error(absl::StatusCode code) {
    const absl::Status status = Prepare().status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  const TemporaryDirectory directory_;
  const Vocabulary words_, others_;
  TrainArguments arguments_;
};

TEST_F(TrainPreparationTest, TheModelsVocabulariesAreTheCorpuss) {
  StoreCorpus("train", words_, others_);
  arguments_.config.overrides = {"model.sharing=none"};
  const PreparedRun run = Prepare().value();
  EXPECT_EQ(run.options.train.model.source_vocabulary, 7);
  EXPECT_EQ(run.options.train.model.target_vocabulary, 5);
  EXPECT_EQ(run.options.train.run_directory, arguments_.run_directory);
  EXPECT_EQ(run.train->size(), 1);
  EXPECT_FALSE(run.validation.has_value());
  ASSERT_EQ(run.attachments.size(), 2u);
  EXPECT_EQ(run.attachments[0].name, "source.vocabulary.txt");
  EXPECT_EQ(run.attachments[0].contents, words_.contents());
  EXPECT_EQ(run.attachments[1].name, "target.vocabulary.txt");
  EXPECT_EQ(run.attachments[1].contents, others_.contents());
}

TEST_F(TrainPreparationTest, ASharedVocabularyIsCarriedOnce) {
  StoreCorpus("train", words_, words_);
  const PreparedRun run = Prepare().value();
  ASSERT_EQ(run.attachments.size(), 1u);
  EXPECT_EQ(run.attachments[0].name, "vocabulary.txt");
}

// Of one size or not: an id is another piece on either side.
TEST_F(TrainPreparationTest, OneEmbeddingForAllNeedsOneVocabulary) {
  StoreCorpus("train", words_, *Vocabulary::FromTokens({"x", "y", "z"}));
  arguments_.config.overrides = {"model.sharing=all"};
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr("needs one vocabulary"), HasSubstr("Prepare it without --separate"),
                    HasSubstr("\n  --set model.sharing=all")));
  for (const char* sharing : {"decoder", "none"}) {
    arguments_.config.overrides = {std::string("model.sharing=") + sharing};
    EXPECT_TRUE(Prepare().ok()) << sharing;
  }
}

TEST_F(TrainPreparationTest, ACorpusThatIsNotThereIsToldWithItsField) {
  EXPECT_THAT(Error(absl::StatusCode::kNotFound),
              AllOf(HasSubstr(directory_ / "train"), HasSubstr("data.train is a prefix of files")));
  StoreCorpus("train", words_, words_);
  arguments_.config.overrides = {"data.validation=" + directory_ / "valid"};
  EXPECT_THAT(Error(absl::StatusCode::kNotFound),
              AllOf(HasSubstr(directory_ / "valid"), HasSubstr("data.validation is a prefix of files")));
}

TEST_F(TrainPreparationTest, CorporaOfDifferentVocabulariesAreRefused) {
  StoreCorpus("train", words_, words_);
  arguments_.config.overrides = {"data.validation=" + directory_ / "valid"};
  StoreCorpus("valid", words_, words_);
  EXPECT_TRUE(Prepare().ok());
  for (const bool source : {false, true}) {
    StoreCorpus("valid", source ? others_ : words_, source ? words_ : others_);
    EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument), HasSubstr("prepared with different vocabularies"));
  }
  StoreCorpus("train", words_, words_, {.tags = "none"});
  StoreCorpus("valid", words_, words_, {.tags = "m2m100"});
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              HasSubstr("different vocabularies, document masks, tags or features"));
}

TEST_F(TrainPreparationTest, AnErrorSaysWhereItsFieldsWereSet) {
  StoreCorpus("train", words_, words_);
  arguments_.config.overrides = {"model.heads=3"};
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr("\n  --set model.heads=3"), HasSubstr("run.textproto:1:9: model.d_model = 16")));
}

TEST_F(TrainPreparationTest, WhatTheCommandLineSaysIsRefusedToo) {
  StoreCorpus("train", words_, words_);
  arguments_.stop_after = "soon";
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument), HasSubstr("soon"));
  arguments_.run_directory = "";
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument), HasSubstr("--run-dir is empty"));
}

}  // namespace
}  // namespace hadal
