// Which sentences validations translate, and when they report that the translations do not depend on them. What the
// translations and scores are: tests/integration/decoder_test.cc.
#include "pipeline/validation_bleu.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "layers/parameter_store.h"
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

constexpr int32_t kVocabulary = 20, kWords = kVocabulary - kSpecialTokens;
constexpr absl::Duration kHang = absl::Seconds(30);

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
  ValidationBleu Make(int32_t samples, int64_t sentences) const {
    std::vector<Sample> list;
    for (int32_t i = 0; i < samples; ++i) {
      const int32_t word = kSpecialTokens + i % kWords;
      list.push_back({.source = {word}, .target = {word}});
    }
    std::vector<std::string> words;
    for (int32_t i = 0; i < kWords; ++i) words.push_back(absl::StrCat("w", i));
    const Vocabulary vocabulary = Vocabulary::FromTokens(words).value();
    return ValidationBleu(CorpusOf(list, kVocabulary, kVocabulary), {vocabulary, vocabulary}, sentences, plan_,
                          pipeline_, kHang);
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

TEST_F(ValidationBleuTest, TranslationsThatStayAlikeAreReportedOnce) {
  EXPECT_THAT(Warnings(Make(20, 20)),
              ElementsAre("", HasSubstr("20 of 20 validation sentences have the same translation"), ""));
  EXPECT_THAT(Warnings(Make(19, 19)), ElementsAre("", "", "")) << "too few to tell";
}

}  // namespace
}  // namespace hadal
