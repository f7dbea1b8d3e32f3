// What validations of one rank's weights find, note and tell; those of whole runs:
// tests/integration/validation_run_test.cc.
#include "pipeline/validator.h"

#include <cmath>

#include "gmock/gmock.h"
#include "layers/parameter_store.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/packed_batch.h"
#include "tests/support/corpus_of.h"
#include "tests/support/tiny_plan.h"
#include "tests/support/training_engine.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int32_t kVocabulary = 20;
constexpr absl::Duration kHang = absl::Seconds(30);

class Listener : public MetricsSink {
 public:
  void OnValidation(const ValidationMetrics& metrics) override { validations.push_back(metrics); }
  void OnText(int64_t step, TextKind kind, std::string_view text) override {
    EXPECT_TRUE(kind == TextKind::kSample || kind == TextKind::kWarning);
    (kind == TextKind::kSample ? samples : warnings).emplace_back(text);
  }
  std::vector<ValidationMetrics> validations;
  std::vector<std::string> samples, warnings;
};

// Five sentences, of which the third has a side that fits no micro-batch.
Corpus Sentences() {
  return CorpusOf({{.source = {5, 6}, .target = {7}},
                   {.source = {8}, .target = {9, 10}},
                   {.source = {5, 5, 5, 5, 5, 5, 5, 5, 5}, .target = {7}},
                   {.source = {11, 12, 13}, .target = {14, 15}},
                   {.source = {16}, .target = {17, 18, 19}}},
                  kVocabulary, kVocabulary);
}

class ValidatorTest : public ::testing::Test {
 protected:
  ValidatorTest()
      : plan_(TinyPlan({.vocabulary = kVocabulary})),
        pipeline_(
            MakePipelineLayout(plan_, {.micro_batches = 2, .source_tokens = 8, .target_tokens = 8}, {}, 1).value()) {
    PrepareComputeThread();
    Communicator& communicator = world_.communicator(0);
    engine_ = *TrainingEngine(plan_, pipeline_, communicator);
    Initialize(/*seed=*/1);
    progress_ = {.step = 12, .update = 10, .seed = 1};
  }

  void Initialize(uint64_t seed) {
    const ParameterStore& parameters = engine_->stage().parameters();
    ASSERT_TRUE(InitializeParameters(pipeline_, parameters, seed, Stream::Cpu(1), world_.communicator(0), kHang).ok());
  }
  Validator Make(int64_t max_sentences = 0, TranslateValidation bleu = {}, bool tells = true) {
    return *Validator::Create({.corpus = corpus_,
                               .capacity = {.source_rows = 8, .target_rows = 8, .sentence_rows = 8},
                               .max_sentences = max_sentences,
                               .bleu = std::move(bleu),
                               .sink = tells ? &listener_ : nullptr});
  }

  const ModelPlan plan_;
  const PipelineLayout pipeline_;
  const Corpus corpus_ = Sentences();
  InProcessWorld world_{1};
  std::unique_ptr<Engine> engine_;
  TrainingProgress progress_;
  Listener listener_;
};

TEST_F(ValidatorTest, TellsTheNllOfTheSentencesThatFit) {
  Validator validator = Make();
  EXPECT_EQ(validator.sentences(), 4);
  EXPECT_EQ(validator.too_long(), 1);
  ASSERT_TRUE(validator.Run(*engine_, progress_).ok());
  ASSERT_THAT(listener_.validations, SizeIs(1));
  const ValidationMetrics& metrics = listener_.validations[0];
  EXPECT_EQ(metrics.step, 12);
  EXPECT_EQ(metrics.sentences, 4);
  EXPECT_GT(metrics.nll, 0.5 * std::log(kVocabulary));
  EXPECT_LT(metrics.nll, 2 * std::log(kVocabulary)) << "of weights that know nothing";
  EXPECT_EQ(metrics.perplexity, std::exp(metrics.nll));
  EXPECT_TRUE(metrics.best);
  EXPECT_TRUE(metrics.by_nll);
  EXPECT_FALSE(metrics.scores.has_value());
  EXPECT_FALSE(metrics.accuracy.has_value()) << "that is an encoder's alone";
  EXPECT_GT(metrics.seconds, 0);
  EXPECT_THAT(listener_.samples, IsEmpty()) << "nothing was translated";
  EXPECT_EQ(Make(/*max_sentences=*/2).sentences(), 2);
}

TEST_F(ValidatorTest, NotesTheBestAndCountsWhatIsNoBetter) {
  Validator validator = Make();
  ASSERT_TRUE(validator.Run(*engine_, progress_).ok());
  const double nll = listener_.validations[0].nll;
  EXPECT_EQ(progress_.validation_nll, nll);
  EXPECT_THAT(progress_.best, ElementsAre(ScoredStep{12, nll}));
  EXPECT_EQ(progress_.validations_without_improvement, 0);

  progress_.step = 13;  // with the same weights
  ASSERT_TRUE(validator.Run(*engine_, progress_).ok());
  EXPECT_EQ(listener_.validations[1].nll, nll);
  EXPECT_FALSE(listener_.validations[1].best);
  EXPECT_EQ(progress_.best_step(), 12);
  EXPECT_EQ(progress_.validations_without_improvement, 1);

  progress_.step = 14;
  progress_.best = {{12, 2 * nll}};
  ASSERT_TRUE(validator.Run(*engine_, progress_).ok());
  EXPECT_TRUE(listener_.validations[2].best);
  EXPECT_THAT(progress_.best, ElementsAre(ScoredStep{14, nll}));
  EXPECT_EQ(progress_.validations_without_improvement, 0);
}

TEST_F(ValidatorTest, KeepsTheBestByTheMetricAndOfEqualOnesTheEarlier) {
  for (const ValidationMetric metric : {ValidationMetric::kBleu, ValidationMetric::kChrf}) {
    std::vector<double> scores = {35, 40, 20, 40, 36};
    const auto translate = [&](Engine&, int64_t) -> absl::StatusOr<TranslatedValidation> {
      const double score = scores.front();
      scores.erase(scores.begin());
      if (metric == ValidationMetric::kBleu) return TranslatedValidation{.scores = {{.bleu = score}}};
      return TranslatedValidation{.scores = {{.bleu = 100 - score, .chrf = score}}};
    };
    ValidatorSetup setup{.corpus = corpus_,
                         .capacity = {8, 8, 8},
                         .bleu = translate,
                         .metric = metric,
                         .keep_best = 3,
                         .sink = &listener_};
    Validator validator = *Validator::Create(setup);
    progress_ = {.step = 0, .update = 10, .seed = 1};
    for (int validation = 0; validation < 5; ++validation) {
      ++progress_.step;
      ASSERT_TRUE(validator.Run(*engine_, progress_).ok());
    }
    EXPECT_THAT(progress_.best, ElementsAre(ScoredStep{2, 40}, ScoredStep{4, 40}, ScoredStep{5, 36}));
    EXPECT_EQ(progress_.validations_without_improvement, 3);
    EXPECT_FALSE(listener_.validations.back().by_nll);
  }
}

// Nothing is saved among skipped steps, so that no checkpoint would have this best.
TEST_F(ValidatorTest, NotesNoBestAmongSkippedSteps) {
  Validator validator = Make();
  progress_.best = {{10, 100}};
  progress_.validations_without_improvement = 2;
  progress_.skipped_in_a_row = 1;
  ASSERT_TRUE(validator.Run(*engine_, progress_).ok());
  EXPECT_FALSE(listener_.validations[0].best);
  EXPECT_THAT(progress_.best, ElementsAre(ScoredStep{10, 100}));
  EXPECT_EQ(progress_.validations_without_improvement, 2) << "it was better";
}

TEST_F(ValidatorTest, SeesTheWeightsAsTheyAre) {
  Validator validator = Make();
  ASSERT_TRUE(validator.Run(*engine_, progress_).ok());
  Initialize(/*seed=*/2);
  ASSERT_TRUE(validator.Run(*engine_, progress_).ok());
  EXPECT_NE(listener_.validations[0].nll, listener_.validations[1].nll);
}

// The whole's nll is their mean by tokens; a corpus without a sentence that fits is left out.
TEST_F(ValidatorTest, ReportsEachCorpusOfSeveral) {
  const Corpus corpus = CorpusOf({{.corpus_id = 0, .source = {5, 6}, .target = {7}},
                                  {.corpus_id = 1, .source = {5, 5, 5, 5, 5, 5, 5, 5, 5}, .target = {7}},
                                  {.corpus_id = 2, .source = {8}, .target = {9, 10}}},
                                 kVocabulary, kVocabulary);
  Validator validator = *Validator::Create(
      {.corpus = corpus,
       .capacity = {.source_rows = 8, .target_rows = 8, .sentence_rows = 8},
       .bleu = [](Engine&, int64_t) -> absl::StatusOr<TranslatedValidation> {
         return TranslatedValidation{.scores = TranslationScores{.bleu = 2},
                                     .corpora = {std::nullopt, std::nullopt, TranslationScores{.bleu = 3}}};
       },
       .sink = &listener_});
  ASSERT_TRUE(validator.Run(*engine_, progress_).ok());
  const ValidationMetrics& metrics = listener_.validations[0];
  ASSERT_THAT(metrics.corpora, SizeIs(2));
  EXPECT_EQ(metrics.corpora[0].corpus, "corpora 0");
  EXPECT_EQ(metrics.corpora[1].corpus, "corpora 2");
  EXPECT_EQ(metrics.corpora[0].target_tokens, 2);
  EXPECT_EQ(metrics.corpora[1].target_tokens, 3);
  EXPECT_NEAR((2 * metrics.corpora[0].nll + 3 * metrics.corpora[1].nll) / 5, metrics.nll, 1e-12);
  EXPECT_NE(metrics.corpora[0].nll, metrics.corpora[1].nll);
  EXPECT_FALSE(metrics.corpora[0].scores.has_value());
  EXPECT_EQ(metrics.corpora[1].scores->bleu, 3);
}

TEST_F(ValidatorTest, TranslatesWhereTheRunDoes) {
  std::vector<int64_t> updates;
  Validator validator = Make(0, [&](Engine&, int64_t update) -> absl::StatusOr<TranslatedValidation> {
    updates.push_back(update);
    return TranslatedValidation{
        .scores = TranslationScores{.bleu = 12.5}, .sample = "a sample", .warning = update == 1 ? "a warning" : ""};
  });
  ASSERT_TRUE(validator.Run(*engine_, progress_).ok());
  progress_.update = 0;  // every step so far was left out
  ASSERT_TRUE(validator.Run(*engine_, progress_).ok());
  progress_.updates_before = 7;
  ASSERT_TRUE(validator.Run(*engine_, progress_).ok());
  EXPECT_THAT(updates, ElementsAre(10, 1, 7));
  EXPECT_EQ(listener_.validations[0].scores->bleu, 12.5);
  EXPECT_THAT(listener_.samples, ElementsAre("a sample", "a sample", "a sample"));
  EXPECT_THAT(listener_.warnings, ElementsAre("a warning"));
}

// 40 batches in parts of 16; a request is found after a part that is not the last thing to do, and after the
// translation.
TEST_F(ValidatorTest, ARequestToStopEndsAValidationWithoutATrace) {
  const Corpus corpus = CorpusOf({40, {.source = {5, 6, 7}, .target = {8, 9, 10, 11}}}, kVocabulary, kVocabulary);
  int polls = 0, translated = 0, stop_at = 0;
  const auto bleu = [&](Engine&, int64_t) -> absl::StatusOr<TranslatedValidation> {
    ++translated;
    return TranslatedValidation{};
  };
  const auto stop_requested = [&] { return ++polls == stop_at; };
  ValidatorSetup setup{
      .corpus = corpus, .capacity = {8, 8, 8}, .bleu = bleu, .stop_requested = stop_requested, .sink = &listener_};
  Validator validator = *Validator::Create(setup);
  const TrainingProgress before = progress_;
  for (stop_at = 1; stop_at <= 4; ++stop_at, polls = 0) {
    EXPECT_FALSE(*validator.Run(*engine_, progress_)) << "at poll " << stop_at;
    EXPECT_EQ(polls, stop_at);
    EXPECT_EQ(translated, stop_at < 4 ? 0 : 1);
    EXPECT_EQ(progress_, before);
    EXPECT_THAT(listener_.validations, IsEmpty());
  }
  EXPECT_TRUE(*validator.Run(*engine_, progress_));
  const ValidationBatches whole = MakeValidationBatches(corpus, {8, 8, 8}, 0).value();
  EXPECT_THAT(whole.batches, SizeIs(40));
  EXPECT_EQ(progress_.validation_nll, engine_->Evaluate(whole.batches, {.update = 10, .training = false})->MeanNll());
  setup.bleu = {};
  stop_at = 3, polls = 0;
  EXPECT_TRUE(*Validator::Create(setup)->Run(*engine_, progress_)) << "the nll is complete after the last part";
  EXPECT_EQ(polls, 2);
}

TEST_F(ValidatorTest, NothingIsToldOfATranslationThatFails) {
  Validator validator =
      Make(0, [](Engine&, int64_t) -> absl::StatusOr<TranslatedValidation> { return absl::InternalError("no words"); });
  EXPECT_EQ(validator.Run(*engine_, progress_).status(), absl::InternalError("no words"));
  EXPECT_THAT(listener_.validations, IsEmpty());
}

// Nor do they leave the others to translate alone.
TEST_F(ValidatorTest, RanksThatDoNotReportDoAndNoteTheSame) {
  int translated = 0;
  const TranslateValidation bleu = [&](Engine&, int64_t) -> absl::StatusOr<TranslatedValidation> {
    ++translated;
    return TranslatedValidation{.scores = TranslationScores{.bleu = 12.5}};
  };
  TrainingProgress other = progress_;
  ASSERT_TRUE(Make(0, bleu).Run(*engine_, progress_).ok());
  ASSERT_TRUE(Make(0, bleu, /*tells=*/false).Run(*engine_, other).ok());
  EXPECT_EQ(other, progress_);
  EXPECT_EQ(translated, 2);
  EXPECT_THAT(listener_.validations, SizeIs(1));
}

TEST_F(ValidatorTest, PartsOfNoMicroBatchAreACallersError) {
  EXPECT_DEATH(Validator::Create({.corpus = corpus_, .capacity = {8, 8, 8}, .part = 0}).IgnoreError(), "part");
}

TEST_F(ValidatorTest, RefusesACorpusOfWhichNothingFits) {
  EXPECT_EQ(Validator::Create({.corpus = corpus_, .capacity = {.source_rows = 1, .target_rows = 1}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Which sentences validations translate, and when they report that the translations do not depend on them. What the
// translations and scores are: tests/integration/decoder_test.cc.
constexpr int32_t kWords = kVocabulary - kSpecialTokens;

// All weights are 0: every token is equally likely, whatever the source.
class ValidationBleuTest : public ::testing::Test {
 protected:
  ValidationBleuTest() {
    PrepareComputeThread();
    engine_ = *TrainingEngine(plan_, pipeline_, world_.communicator(0));
    const ParameterStore& parameters = engine_->stage().parameters();
    for (const int32_t p : parameters.owned()) {
      const Vector weight = parameters.WeightVector(p);
      std::fill_n(weight.data, weight.size, 0.0f);
    }
  }

  // Of a corpus whose sample i has word i as its source and its target.
  ValidationBleu Make(int32_t samples, int64_t sentences, int32_t corpora = 1, std::function<bool()> stop = {}) const {
    std::vector<Sample> list;
    for (int32_t i = 0; i < samples; ++i) {
      const int32_t word = kSpecialTokens + i % kWords;
      list.push_back({.corpus_id = i % corpora, .source = {word}, .target = {word}});
    }
    return MakeOf(list, sentences, std::move(stop));
  }
  ValidationBleu MakeOf(const std::vector<Sample>& list, int64_t sentences, std::function<bool()> stop = {}) const {
    std::vector<std::string> words;
    for (int32_t i = 0; i < kWords; ++i) words.push_back(absl::StrCat("w", i));
    const Vocabulary vocabulary = Vocabulary::FromTokens(words).value();
    return ValidationBleu(CorpusOf(list, kVocabulary, kVocabulary), {vocabulary, vocabulary}, sentences, plan_,
                          pipeline_, kHang, BleuTokenizer::k13a, std::move(stop));
  }
  // Of three validations.
  std::vector<std::string> Warnings(ValidationBleu bleu) {
    std::vector<std::string> warnings;
    for (int i = 0; i < 3; ++i) warnings.push_back(bleu(*engine_, /*update=*/1).value().warning);
    return warnings;
  }

  const ModelPlan plan_ = TinyPlan({.vocabulary = kVocabulary});
  const PipelineLayout pipeline_ =
      MakePipelineLayout(plan_, {.micro_batches = 1, .source_tokens = 8, .target_tokens = 8},
                         {.decoder = DecoderOptions{.beam = {.beam = 2, .max_length_b = 2}}}, 1)
          .value();
  InProcessWorld world_{1};
  std::unique_ptr<Engine> engine_;
};

TEST_F(ValidationBleuTest, SentencesAreTakenEvenlyFromTheCorpus) {
  EXPECT_THAT(Make(10, 4).references(), ElementsAre("w0", "w2", "w5", "w7"));
}

// A source ends with </s>; with that it may have 8 tokens.
TEST_F(ValidationBleuTest, SourcesThatAreEmptyOrTooLongAreLeftOut) {
  const ValidationBleu bleu = MakeOf({{.source = {}, .target = {4}},
                                      {.source = {4}, .target = {5}},
                                      {.source = std::vector<int32_t>(7, 4), .target = {6}},
                                      {.source = std::vector<int32_t>(8, 4), .target = {7}}},
                                     4);
  EXPECT_THAT(bleu.references(), ElementsAre("w1", "w2"));
  EXPECT_EQ(bleu.sentences(), 2);
  EXPECT_EQ(bleu.skipped(), 2);
}

TEST_F(ValidationBleuTest, TheSampleIsTheNextSentenceEachTime) {
  ValidationBleu bleu = Make(2, 2);
  for (const char* word : {"w0", "w1", "w0"}) {
    EXPECT_THAT(bleu(*engine_, /*update=*/1).value().sample,
                HasSubstr(absl::StrCat("source:     ", word, "\nreference:  ", word, "\nhypothesis: ")));
  }
}

TEST_F(ValidationBleuTest, EachCorpusOfSeveralHasItsScores) {
  ValidationBleu bleu = Make(4, 4, /*corpora=*/2);
  const TranslatedValidation translated = bleu(*engine_, /*update=*/1).value();
  ASSERT_THAT(translated.corpora, SizeIs(2));
  for (const auto& scores : translated.corpora) EXPECT_TRUE(scores.has_value());
  EXPECT_THAT(Make(4, 4)(*engine_, /*update=*/1).value().corpora, SizeIs(0));
}

TEST_F(ValidationBleuTest, ARequestToStopEndsTheTranslation) {
  ValidationBleu bleu = Make(2, 2, /*corpora=*/1, [] { return true; });
  EXPECT_TRUE(bleu(*engine_, /*update=*/1).ok());
  EXPECT_THAT(bleu.hypotheses(), ElementsAre("", ""));
}

TEST_F(ValidationBleuTest, TranslationsThatStayAlikeAreReportedOnce) {
  EXPECT_THAT(Warnings(Make(20, 20)),
              ElementsAre("", HasSubstr("20 of 20 validation sentences have the same translation"), ""));
  EXPECT_THAT(Warnings(Make(19, 19)), ElementsAre("", "", "")) << "too few to tell";
}

}  // namespace
}  // namespace hadal
