// `hadal score` of a language model: plain text in, log-probabilities and the two perplexities out; and what such a model refuses.
#include "tools/translate/score.h"

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "layers/method_presets.h"
#include "pipeline/checkpoint/training_checkpoints.h"
#include "pipeline/engine.h"
#include "pipeline/parameter_broadcast.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/vocabulary_training.h"
#include "runtime/status_macros.h"
#include "tests/support/temporary_directory.h"
#include "tools/metrics/human_units.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(60);

// A language model as initialised, with its vocabulary.
absl::Status SaveLanguageModel(const std::string& run_directory, Communicator& communicator) {
  const Vocabulary vocabulary = *TrainVocabulary({.size = 40}, {"the old cat sat on the mat", "a dog", "a red door"});
  ModelOptions model{.encoder_layers = 0,
                     .decoder_layers = 3,
                     .d_model = 16,
                     .d_ff = 32,
                     .heads = 2,
                     .target_vocabulary = vocabulary.size(),
                     .max_positions = 40};
  ApplyResidualMethod(ResidualMethod::kPreLn, model);
  const ModelPlan plan = ModelPlan::Make(model);
  HADAL_ASSIGN_OR_RETURN(const PipelinePlan pipeline, MakePipelinePlan(plan, {.micro_batches = 1}, {}, 1));
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                         Engine::Create(plan, pipeline, Stream::Cpu(1), true, communicator, kTimeout));
  HADAL_RETURN_IF_ERROR(
      InitializeParameters(pipeline, engine->stage().parameters(), 7, Stream::Cpu(1), communicator, kTimeout));
  HADAL_RETURN_IF_ERROR(engine->ShareWeights());
  Collectives collectives(communicator, kTimeout);
  const TrainingCheckpointsOptions saving{
      .run_directory = run_directory,
      .config_text = "none",
      .attachments = {{"vocabulary" + std::string(vocabulary.extension()), vocabulary.contents()}}};
  TrainingCheckpoints checkpoints(saving, engine->state(), communicator.rank(), collectives);
  HADAL_RETURN_IF_ERROR(checkpoints.Claim(1));
  checkpoints.Begin({.step = 1, .update = 1}, false);
  return checkpoints.Finish().status();
}

class ScoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    InProcessWorld world(1);
    const absl::Status status = world.Run([&](Communicator& c) {
      PrepareComputeThread();
      return SaveLanguageModel(directory_ / "run", c);
    });
    ASSERT_TRUE(status.ok()) << status;
  }

  struct Line {
    double log_probability = 0;
    int tokens = 0;
    bool operator==(const Line&) const = default;
  };

  ScoreOptions Options(const std::string& text) const {
    SetContents(directory_ / "text", text);
    return {.checkpoint = directory_ / "run", .target = directory_ / "text"};
  }

  absl::StatusOr<std::vector<Line>> Score(const ScoreOptions& options, int ranks = 1) {
    std::ostringstream out, log;
    InProcessWorld world(ranks);
    HADAL_RETURN_IF_ERROR(world.Run([&](Communicator& c) {
      PrepareComputeThread();
      std::ostringstream nowhere;
      return RunScore(options, c, Stream::Cpu(1), c.rank() == 0 ? out : nowhere, c.rank() == 0 ? log : nowhere);
    }));
    log_ = log.str();
    std::vector<Line> lines;
    for (const auto text : absl::StrSplit(out.str(), '\n', absl::SkipEmpty())) {
      const std::vector<std::string> fields = absl::StrSplit(text, '\t');
      lines.push_back({std::stod(fields[0]), std::stoi(fields[1])});
    }
    return lines;
  }

  TemporaryDirectory directory_;
  std::string log_;
};

TEST_F(ScoreTest, PerplexityATokenAndAWord) {
  const absl::StatusOr<std::vector<Line>> lines = Score(Options("the  old cat\n\n a\tdog \nred"));
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 4u);
  EXPECT_EQ((*lines)[1].tokens, 1) << "a blank line is its end alone";
  double nll = 0;
  int tokens = 0;
  for (const Line& line : *lines) {
    EXPECT_LT(line.log_probability, 0);
    nll -= line.log_probability;
    tokens += line.tokens;
  }
  constexpr int kWords = 3 + 0 + 2 + 1 + 4;  // and four ends of lines
  EXPECT_THAT(log_, HasSubstr(absl::StrFormat("scored 4 lines, %d target tokens: nll %.4f, perplexity %s a token",
                                              tokens, nll / tokens, HumanValue(std::exp(nll / tokens), 4))));
  EXPECT_THAT(log_, HasSubstr(absl::StrFormat("%d words: perplexity %s a word", kWords,
                                              HumanValue(std::exp(nll / kWords), 4))));
}

TEST_F(ScoreTest, ALinesScoreDependsOnTheModelAlone) {
  const std::vector<Line> together = *Score(Options("the old cat\na dog\n\nthe mat sat on the red door\n"));
  EXPECT_EQ(*Score(Options("a dog\n")), std::vector<Line>{together[1]});
  EXPECT_EQ(*Score(Options("the mat sat on the red door\n")), std::vector<Line>{together[3]});
  for (const int ranks : {2, 4}) {
    EXPECT_EQ(*Score(Options("the old cat\na dog\n\nthe mat sat on the red door\n"), ranks), together);
  }
}

TEST_F(ScoreTest, LinesLongerThanTheModelAreAnErrorOrCounted) {
  std::string longest;
  for (int i = 0; i < 60; ++i) longest += "mat ";
  ScoreOptions options = Options(absl::StrCat("a dog\n", longest, "\n"));
  EXPECT_THAT(std::string(Score(options).status().message()), HasSubstr("line 2 has"));
  options.over_long = OverLong::kSkip;
  EXPECT_EQ(Score(options)->size(), 2u);
  EXPECT_THAT(log_, HasSubstr("3 words"));
  EXPECT_THAT(log_, HasSubstr("skipped 1 lines"));
}

TEST_F(ScoreTest, ALanguageModelHasNoSourceAndDoesNotTranslate) {
  ScoreOptions options = Options("a dog\n");
  options.source = options.target;
  EXPECT_THAT(std::string(Score(options).status().message()), HasSubstr("reads no --source"));
  InProcessWorld world(1);
  const absl::Status status = world.Run([&](Communicator& c) {
    PrepareComputeThread();
    std::istringstream in("a dog\n");
    std::ostringstream out;
    return RunTranslate({.checkpoint = directory_ / "run"}, c, Stream::Cpu(1), {in, out, out});
  });
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot translate; `hadal score --target FILE`"));
}

}  // namespace
}  // namespace hadal
