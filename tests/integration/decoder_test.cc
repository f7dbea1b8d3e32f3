// Translation over the pipeline: it agrees with the training forward, and nothing around a sentence changes its bits.
#include "pipeline/decode/decoder.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "layers/model_plan.h"
#include "runtime/comm/in_process_communicator.h"
#include "tests/integration/decode_run.h"
#include "tests/integration/pipeline_run.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 203;

DecodeSpec BaseSpec(ResidualMethod method, int d_model = 64) {
  DecodeSpec spec;
  spec.model = SmallModel(method, {.d_model = d_model, .vocabulary = kVocabulary});
  // Where the output has a matrix of its own, a random model does not just repeat its input.
  if (method != ResidualMethod::kDeepNorm) spec.model.sharing = EmbeddingSharing::kNone;
  spec.decoder = {.beam = {.max_length_a = 0.5, .max_length_b = 6}, .longest_source = 32};
  return spec;
}

class DecoderMethodTest : public ::testing::TestWithParam<ResidualMethod> {};

TEST_P(DecoderMethodTest, LogProbabilitiesAreThoseOfAnEvaluation) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(24, 20, kVocabulary, 5);
  for (const int ranks : {1, 3}) {
    DecodeSpec spec = BaseSpec(GetParam());
    spec.moved = true;
    spec.ranks = ranks;
    const DecodeOutcome outcome = Decode(spec, sources, /*evaluate=*/true);
    ASSERT_EQ(outcome.translations.size(), sources.size());
    ASSERT_EQ(outcome.evaluated.size(), sources.size());
    for (size_t s = 0; s < sources.size(); ++s) {
      const Hypothesis& best = outcome.translations[s].front();
      ASSERT_EQ(outcome.evaluated[s].size(), best.token_log_probabilities.size());
      for (size_t t = 0; t < outcome.evaluated[s].size(); ++t) {
        EXPECT_NEAR(-best.token_log_probabilities[t], outcome.evaluated[s][t], 2e-4)
            << "sentence " << s << ", token " << t;
      }
    }
  }
}

TEST_P(DecoderMethodTest, NoBitDependsOnRanksThreadsOrNeighbours) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(13, 20, kVocabulary, 6);
  DecodeSpec base = BaseSpec(GetParam());
  base.moved = true;
  const DecodeOutcome reference = Decode(base, sources);
  struct Layout {
    int ranks, threads, chunks, sentences;
  };
  for (const Layout& l : {Layout{1, 2, 1, 0}, Layout{1, 1, 1, 1}, Layout{3, 1, 1, 3}, Layout{2, 1, 3, 4}}) {
    DecodeSpec spec = base;
    spec.ranks = l.ranks;
    spec.threads = l.threads;
    spec.decoder.sentences = l.sentences;
    if (l.chunks > 1) {
      spec.pipeline.chunks = l.chunks;
      spec.pipeline.schedule = ScheduleKind::kInterleaved1F1B;
    }
    EXPECT_EQ(FirstDifference(reference.translations, Decode(spec, sources).translations), "")
        << l.ranks << " ranks, " << l.threads << " threads, " << l.chunks << " chunks, " << l.sentences << " sentences";
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, DecoderMethodTest, ::testing::ValuesIn(AllResidualMethods()),
                         [](const auto& info) { return ResidualMethodName(info.param); });

TEST(DecoderTest, NoBitDependsOnNeighboursWhereThreadsBite) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(6, 20, kVocabulary, 7);
  DecodeSpec spec = BaseSpec(ResidualMethod::kDeepNorm, 512);
  spec.model.encoder_layers = spec.model.decoder_layers = 1;
  const DecodeOutcome together = Decode(spec, sources);
  spec.threads = 2;
  spec.decoder.sentences = 1;
  EXPECT_EQ(FirstDifference(together.translations, Decode(spec, sources).translations), "");
}

TEST(DecoderTest, EveryCutOfTheModelServes) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(5, 12, kVocabulary, 8);
  for (const ResidualMethod method : {ResidualMethod::kPreLn, ResidualMethod::kDlclPre, ResidualMethod::kDlclPost}) {
    DecodeSpec spec = BaseSpec(method, 32);
    spec.model.encoder_layers = spec.model.decoder_layers = method == ResidualMethod::kPreLn ? 1 : 2;
    const DecodeOutcome reference = Decode(spec, sources);
    const ModelPlan plan = ModelPlan::Make(spec.model);
    spec.ranks = 2;
    for (int32_t cut = 1; cut < static_cast<int32_t>(plan.sublayers.size()); ++cut) {
      if (plan.NextCut(cut) != cut) continue;
      spec.pipeline.split = {cut};
      EXPECT_EQ(FirstDifference(reference.translations, Decode(spec, sources).translations), "")
          << ResidualMethodName(method) << ", cut before " << cut;
    }
  }
}

// Sentences that do not fit are put back; what comes out stays the same.
TEST(DecoderTest, ATightCacheChangesNoBit) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(30, 20, kVocabulary, 9);
  DecodeSpec spec = BaseSpec(ResidualMethod::kDeepNorm);
  const DecodeOutcome roomy = Decode(spec, sources);
  const int64_t row_bytes = 7 * 2 * 64 * 4;
  const int64_t one_sentence = 1 + 32 + 4 * (6 + 16 + 1);
  spec.decoder.cache_limit_bytes = row_bytes * one_sentence;
  const DecodeOutcome tight = Decode(spec, sources);
  EXPECT_EQ(tight.capacity.cache_rows, one_sentence);
  EXPECT_LT(tight.bytes[0], roomy.bytes[0]);
  EXPECT_EQ(FirstDifference(roomy.translations, tight.translations), "");
}

TEST(DecoderTest, ALargeGroupInALittleMoreThanOneSentencesCache) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(40, 6, kVocabulary, 10);
  DecodeSpec spec = BaseSpec(ResidualMethod::kPreLn);
  spec.decoder.beam.max_length_b = 40;
  const DecodeOutcome roomy = Decode(spec, sources);
  spec.decoder.cache_limit_bytes = int64_t{7} * 2 * 64 * 4 * 340;
  EXPECT_EQ(FirstDifference(roomy.translations, Decode(spec, sources).translations), "");
}

TEST(DecoderTest, RefusesWhatDoesNotFit) {
  const DecodeSpec spec = BaseSpec(ResidualMethod::kDeepNorm);
  const ModelPlan plan = ModelPlan::Make(spec.model);
  const absl::StatusOr<PipelinePlan> pipeline = MakePipelinePlan(plan, {}, {}, 1);
  ASSERT_TRUE(pipeline.ok());
  DecoderOptions options = spec.decoder;
  options.cache_limit_bytes = 100000;
  const absl::Status status = PlanDecodeCapacity(plan, *pipeline, options).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("100000"));
}

TEST(DecoderTest, ValidationBleuChangesNoBitOfTraining) {
  RunSpec spec;
  spec.model = SmallModel(ResidualMethod::kBranchNorm, {.d_model = 64, .vocabulary = kVocabulary});
  spec.batch = {.micro_batches = 3, .source_tokens = 96, .target_tokens = 96};
  const Corpus corpus = RandomCorpus(60, 20, kVocabulary, 5);
  const RunOutcome reference = Train(spec, corpus);
  spec.pipeline.decoder = {.beam = {.max_length_b = 20}};
  for (const int ranks : {1, 3}) {
    spec.ranks = ranks;
    const RunOutcome translating = Train(spec, corpus);
    EXPECT_EQ(FirstDifference(reference, translating), "") << ranks << " ranks";
    // Each validation shows the next sentence.
    ASSERT_EQ(std::ssize(translating.samples), spec.steps);
    EXPECT_THAT(translating.samples[0], ::testing::MatchesRegex("source:     w.*\nreference:  w.*\nhypothesis: .*"));
    EXPECT_THAT(translating.samples.back(),
                ::testing::EndsWith("\nhypothesis: " + translating.translations[spec.steps - 1]));
  }
}

// A beam wider than all there is to say finds the best sentence of all.
TEST(DecoderTest, GreedyAndExhaustiveOnATinyVocabulary) {
  constexpr int kTiny = 7;  // <unk> and three words
  DecodeSpec spec = BaseSpec(ResidualMethod::kDeepNorm, 16);
  spec.model.source_vocabulary = spec.model.target_vocabulary = kTiny;
  spec.decoder.beam = {.beam = 64, .length_penalty = 0, .max_length_b = 2};
  const std::vector<std::vector<int32_t>> sources = RandomSources(6, 5, kTiny, 11);
  const DecodeOutcome all = Decode(spec, sources);
  spec.decoder.beam.beam = 1;
  const DecodeOutcome greedy = Decode(spec, sources);
  for (size_t s = 0; s < sources.size(); ++s) {
    EXPECT_EQ(all.translations[s].size(), 4u + 16);  // every sentence of one or two tokens
    ASSERT_EQ(greedy.translations[s].size(), 1u);
    const Hypothesis& path = greedy.translations[s][0];
    const auto same = std::find_if(all.translations[s].begin(), all.translations[s].end(),
                                   [&](const Hypothesis& h) { return h.tokens == path.tokens; });
    ASSERT_NE(same, all.translations[s].end());
    EXPECT_EQ(same->log_probability, path.log_probability);
    EXPECT_GE(all.translations[s][0].score, path.score);
    double total = 0;  // of the sentences that were allowed
    for (const Hypothesis& h : all.translations[s]) total += std::exp(h.log_probability);
    EXPECT_LT(total, 1);
  }
}

}  // namespace
}  // namespace hadal::testing
