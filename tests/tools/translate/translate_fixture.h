// A model that has learned five sentences by heart, and what `hadal translate` prints with it.
#pragma once

#include <sstream>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "pipeline/engine/engine.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/packed_batch.h"
#include "runtime/data/vocabulary_training.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tests/support/saved_model.h"
#include "tests/support/small_model.h"
#include "tests/support/temporary_directory.h"
#include "tools/translate/score.h"
#include "tools/translate/translate.h"

namespace hadal {

inline const std::vector<std::string>& Sentences() {
  static const auto* const sentences =
      new std::vector<std::string>{"the old cat sat on the mat", "a dog", "every small house has a red door",
                                   "Cats, dogs and 12 birds!", "on the mat"};
  return *sentences;
}

inline Vocabulary MakeVocabulary() { return *TrainVocabulary({.size = 60}, Sentences()); }

// The model learns by heart that each sentence means the next one.
inline const std::string& MeaningOf(size_t sentence) { return Sentences()[(sentence + 1) % Sentences().size()]; }

inline ModelOptions TinyModel(int32_t vocabulary) {
  ModelOptions model = testing::SmallModel(
      ResidualMethod::kBranchNorm, {.encoder_layers = 2, .decoder_layers = 2, .d_model = 32, .vocabulary = vocabulary});
  model.dropout = model.attention_dropout = model.activation_dropout = model.label_smoothing = 0;
  model.branch_growth_updates = 200;
  return model;
}

inline absl::StatusOr<int64_t> LearnByHeart(const PackedBatch& batch, int64_t steps, Engine& engine) {
  for (int64_t step = 0; step < steps; ++step) {
    const StepScalars scalars{
        .step = step, .update = step + 1, .gradient_scale = 1.0f / static_cast<float>(batch.target_rows())};
    HADAL_RETURN_IF_ERROR(engine.TrainingStep({&batch, 1}, scalars, {.learning_rate = 4e-3}).status());
  }
  return steps;
}

inline absl::StatusOr<int64_t> Learn(const Vocabulary& vocabulary, Engine& engine) {
  PackedBatch batch;
  for (size_t s = 0; s < Sentences().size(); ++s) {
    const std::vector<int32_t> source = vocabulary.Encode(Sentences()[s]), target = vocabulary.Encode(MeaningOf(s));
    AppendSentence({.source = source, .target = target}, static_cast<int64_t>(s), batch);
  }
  return LearnByHeart(batch, 120, engine);
}

class TranslateTest : public ::testing::Test {
 protected:
  void SetUp() override { Save(/*shared=*/true, /*ranks=*/1); }

  void Save(bool shared, int ranks, const std::string& config = "") {
    const Vocabulary vocabulary = MakeVocabulary();
    SavedModel saved{.model = TinyModel(vocabulary.size()),
                     .vocabularies = {VocabularyFile("vocabulary", vocabulary)},
                     .config = config,
                     .ranks = ranks,
                     .train = [&](Engine& engine) { return Learn(vocabulary, engine); }};
    if (!shared) {
      saved.vocabularies = {VocabularyFile("source.vocabulary", vocabulary),
                            VocabularyFile("target.vocabulary", vocabulary)};
    }
    ASSERT_EQ(SaveModel(saved, directory_ / "run"), absl::OkStatus());
  }

  TranslateOptions Options() const {
    TranslateOptions options{.checkpoint = directory_ / "run"};
    options.beam.max_length_b = 40;
    return options;
  }

  // What the command prints, or its error.
  absl::StatusOr<std::string> Translate(const TranslateOptions& options, const std::string& input, int ranks = 1) {
    std::istringstream in(input);
    std::ostringstream out, log;
    InProcessWorld world(ranks);
    const absl::Status status = world.Run([&](Communicator& c) {
      PrepareComputeThread();
      if (c.rank() == 0) return RunTranslate(options, c, Stream::Cpu(1), {in, out, log});
      std::istringstream none;
      std::ostringstream nowhere;
      const absl::Status followed = RunTranslate(options, c, Stream::Cpu(1), {none, nowhere, nowhere});
      EXPECT_EQ(nowhere.str(), "");
      return followed;
    });
    log_ = log.str();
    if (!status.ok()) return status;
    return out.str();
  }

  // What `hadal score` prints of the run: log-probabilities and tokens. `languages`: direction and tags.
  std::vector<std::pair<double, int>> Score(const std::string& source, const std::string& target, int ranks = 1,
                                            const ScoreOptions& languages = {}) {
    SetContents(directory_ / "source", source);
    SetContents(directory_ / "target", target);
    ScoreOptions options = languages;
    options.checkpoint = directory_ / "run";
    options.source = directory_ / "source";
    options.target = directory_ / "target";
    std::ostringstream out, log;
    InProcessWorld world(ranks);
    const absl::Status status = world.Run([&](Communicator& c) {
      PrepareComputeThread();
      std::ostringstream nowhere;
      return RunScore(options, c, Stream::Cpu(1), c.rank() == 0 ? out : nowhere, c.rank() == 0 ? log : nowhere);
    });
    EXPECT_TRUE(status.ok()) << status;
    std::vector<std::pair<double, int>> scores;
    for (const auto line : absl::StrSplit(out.str(), '\n', absl::SkipEmpty())) {
      const std::vector<std::string> fields = absl::StrSplit(line, '\t');
      EXPECT_EQ(fields.size(), 2u);
      scores.push_back({std::stod(fields[0]), std::stoi(fields[1])});
    }
    return scores;
  }

  TemporaryDirectory directory_;
  std::string log_;
};

inline std::string Lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  return text;
}

}  // namespace hadal
