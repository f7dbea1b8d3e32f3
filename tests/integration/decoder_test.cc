// Translation over the pipeline: it agrees with the training forward, and nothing around a sentence changes its bits.
#include "pipeline/decode/decoder.h"

#include <cmath>
#include <set>

#include "gmock/gmock.h"
#include "layers/adaptive_bands.h"
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

struct Layout {
  int ranks, threads, chunks, sentences;
};

// The translations of `base`, laid out as each of `layouts` says, are those of `reference`.
void ExpectSameOn(const std::vector<Layout>& layouts, const DecodeSpec& base,
                  const std::vector<std::vector<int32_t>>& sources, const DecodeOutcome& reference) {
  for (const Layout& l : layouts) {
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

// Expects the probabilities of all tokens in decoding, in an adaptive softmax of one band's in an evaluation, to agree;
// returns the number of evaluated rows.
int64_t ExpectEvaluatedProbabilities(const DecodeOutcome& outcome) {
  int64_t rows = 0;
  EXPECT_EQ(outcome.evaluated.size(), outcome.translations.size());
  for (size_t s = 0; s < outcome.translations.size(); ++s) {
    const std::vector<float>& found = outcome.translations[s].front().token_log_probabilities;
    EXPECT_EQ(found.size(), outcome.evaluated.at(s).size());
    for (size_t t = 0; t < found.size(); ++t, ++rows) {
      EXPECT_NEAR(-found[t], outcome.evaluated[s].at(t), 2e-4) << "sentence " << s << ", token " << t;
    }
  }
  return rows;
}

class DecoderMethodTest : public ::testing::TestWithParam<ResidualMethod> {};

TEST_P(DecoderMethodTest, LogProbabilitiesAreThoseOfAnEvaluation) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(24, 20, kVocabulary, 5);
  for (const int ranks : {1, 3}) {
    DecodeSpec spec = BaseSpec(GetParam());
    spec.moved = true;
    spec.ranks = ranks;
    const DecodeOutcome outcome = Decode(spec, sources, /*evaluate=*/true);
    EXPECT_EQ(outcome.translations.size(), sources.size());
    EXPECT_GE(ExpectEvaluatedProbabilities(outcome), std::ssize(sources));
  }
}

TEST_P(DecoderMethodTest, NoBitDependsOnRanksThreadsOrNeighbours) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(13, 20, kVocabulary, 6);
  DecodeSpec base = BaseSpec(GetParam());
  base.moved = true;
  const DecodeOutcome reference = Decode(base, sources);
  ExpectSameOn({{1, 2, 1, 0}, {1, 1, 1, 1}, {3, 1, 1, 3}, {2, 1, 3, 4}}, base, sources, reference);
}

TEST(DecoderTest, ATranslationThatWasStoppedLeavesNothingToTheNext) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(13, 20, kVocabulary, 6);
  DecodeSpec spec = BaseSpec(ResidualMethod::kPreLn);
  const DecodeOutcome reference = Decode(spec, sources);
  spec.stop_after_steps = 3;
  spec.decoder.sentences = 4;
  ExpectSameOn({{1, 1, 1, 4}, {2, 1, 3, 4}}, spec, sources, reference);
}

// Draws, with a beginning for every third sentence.
DecodeSpec SamplingSpec(const std::vector<std::vector<int32_t>>& sources) {
  DecodeSpec spec = BaseSpec(ResidualMethod::kPreLn);
  spec.decoder.beam.beam = 3;
  spec.decoder.beam.sampling = {.temperature = 1.2, .top_k = 150, .top_p = 0.95, .seed = 5};
  spec.decoder.prefixes = true;
  for (uint32_t s = 0; s < sources.size(); ++s) {
    spec.starts.push_back({.prefix = s % 3 == 0 ? std::vector<int32_t>{9, 120} : std::vector<int32_t>{}, .number = s});
  }
  return spec;
}

// 64 sentences together or one at a time; with room for little more than one; in another order, so that their
// neighbours are others.
TEST(DecoderTest, ASampleDependsOnItsSentenceAndNumberAlone) {
  std::vector<std::vector<int32_t>> sources = RandomSources(64, 20, kVocabulary, 6);
  const DecodeSpec base = SamplingSpec(sources);
  const DecodeOutcome reference = Decode(base, sources, /*evaluate=*/true);
  ExpectEvaluatedProbabilities(reference);
  for (size_t s = 0; s < sources.size(); ++s) {
    const Translation& samples = reference.translations[s];
    ASSERT_EQ(samples.size(), 3u);
    EXPECT_NE(samples[0].tokens, samples[1].tokens);
    const std::vector<int32_t>& prefix = base.starts[s].prefix;
    for (const Hypothesis& h : samples) EXPECT_TRUE(std::equal(prefix.begin(), prefix.end(), h.tokens.begin()));
  }
  ExpectSameOn({{3, 1, 1, 64}, {1, 2, 1, 64}, {1, 1, 1, 1}, {2, 1, 3, 4}}, base, sources, reference);
  DecodeSpec tight = base;
  tight.decoder.cache_limit_bytes = int64_t{7} * 2 * 64 * 4 * (1 + 32 + 3 * 24);
  EXPECT_EQ(FirstDifference(reference.translations, Decode(tight, sources).translations), "") << "put back";
  DecodeSpec reversed = base;
  std::reverse(sources.begin(), sources.end());
  std::reverse(reversed.starts.begin(), reversed.starts.end());
  DecodeOutcome outcome = Decode(reversed, sources);
  std::reverse(outcome.translations.begin(), outcome.translations.end());
  EXPECT_EQ(FirstDifference(reference.translations, outcome.translations), "") << "reversed";
}

// Every output of at most two tokens, from a beam that is wider; and how often each is drawn. Pearson's statistic: its
// 99.9% quantile with 19 degrees of freedom is 43.8, and the seed is fixed.
TEST(DecoderTest, SamplesHaveTheModelsProbabilities) {
  constexpr int kTiny = 7;  // <unk> and three words
  DecodeSpec spec = BaseSpec(ResidualMethod::kDeepNorm, 16);
  spec.model.source_vocabulary = spec.model.target_vocabulary = kTiny;
  spec.decoder.beam = {.beam = 64, .length_penalty = 0, .max_length_b = 2};
  const std::vector<int32_t> source = {4, 6, 5};
  // </s> alone may follow two tokens: its probability there is 1.
  std::map<std::vector<int32_t>, double> probability;
  std::map<int32_t, double> first, second_sum;  // by the first token
  double first_sum = 0;
  const DecodeOutcome all = Decode(spec, {source});
  for (const Hypothesis& h : all.translations[0]) {
    const double second = std::exp(h.token_log_probabilities[1]);
    probability[h.tokens] = second;
    second_sum[h.tokens[0]] += second;
    first[h.tokens[0]] = std::exp(h.token_log_probabilities[0]);
  }
  for (const auto& [token, p] : first) first_sum += p;
  for (auto& [tokens, p] : probability) p *= first[tokens[0]] / first_sum / second_sum[tokens[0]];
  ASSERT_EQ(probability.size(), 4u + 16);
  spec.decoder.beam.sampling = DrawOptions{.seed = 3};
  constexpr int kSentences = 100, kDraws = kSentences * 64;
  std::map<std::vector<int32_t>, int> drawn;
  const DecodeOutcome outcome = Decode(spec, std::vector(kSentences, source));
  for (const Translation& samples : outcome.translations) {
    for (const Hypothesis& h : samples) ++drawn[h.tokens];
  }
  double statistic = 0, sum = 0, rarest = kDraws;
  for (const auto& [tokens, p] : probability) {
    statistic += (drawn[tokens] - kDraws * p) * (drawn[tokens] - kDraws * p) / (kDraws * p);
    sum += p;
    rarest = std::min(rarest, kDraws * p);
  }
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_EQ(drawn.size(), probability.size());
  EXPECT_GE(rarest, 5) << "too rare for the statistic";
  EXPECT_LT(statistic, 43.8);
}

// Its texts, from their beginnings; log-probabilities are those of an evaluation of plain text.
TEST(DecoderTest, ALanguageModelContinuesPrompts) {
  for (const ResidualMethod method : {ResidualMethod::kDeepNorm, ResidualMethod::kDlclPre}) {
    DecodeSpec spec = BaseSpec(method);
    spec.model =
        SmallModel(method, {.encoder_layers = 0, .decoder_layers = 4, .d_model = 64, .vocabulary = kVocabulary});
    spec.moved = true;
    spec.decoder.beam = {.beam = 2, .length_penalty = 0, .max_length_b = 14, .sampling = DrawOptions{}};
    spec.decoder.prefixes = true;
    for (const std::vector<int32_t>& prompt : RandomSources(20, 14, kVocabulary, 8)) spec.starts.push_back({prompt, 1});
    spec.starts[5].prefix.clear();
    const std::vector<std::vector<int32_t>> none(spec.starts.size());
    const DecodeOutcome reference = Decode(spec, none, /*evaluate=*/true);
    EXPECT_GE(ExpectEvaluatedProbabilities(reference), std::ssize(none));
    for (size_t s = 0; s < none.size(); ++s) {
      const std::vector<int32_t>& prompt = spec.starts[s].prefix;
      EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), reference.translations[s].front().tokens.begin())) << s;
    }
    spec.ranks = 3;
    spec.decoder.sentences = 1;
    EXPECT_EQ(FirstDifference(reference.translations, Decode(spec, none).translations), "") << "3 ranks";
  }
}

// Outputs longer than the lists of candidates, so that most of what a list has is excluded.
TEST(DecoderTest, NoTokenOccursTwiceIfNoneMayAndNoBitDependsOnTheLayout) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(13, 20, kVocabulary, 6);
  DecodeSpec spec = BaseSpec(ResidualMethod::kDeepNorm);
  spec.moved = true;
  spec.decoder.beam = {.beam = 2, .max_length_b = 20, .min_length = 20, .no_repeat_ngram = 1};
  const DecodeOutcome reference = Decode(spec, sources);
  for (const std::vector<Hypothesis>& hypotheses : reference.translations) {
    ASSERT_FALSE(hypotheses.empty());
    for (const Hypothesis& hypothesis : hypotheses) {
      const std::set<int32_t> distinct(hypothesis.tokens.begin(), hypothesis.tokens.end());
      EXPECT_EQ(distinct.size(), hypothesis.tokens.size());
    }
  }
  spec.ranks = 3;
  spec.decoder.sentences = 1;
  EXPECT_EQ(FirstDifference(reference.translations, Decode(spec, sources).translations), "") << "3 ranks";
}

// Prompts have tokens of every band.
DecodeSpec AdaptiveSpec(EmbeddingSharing sharing, int prompts) {
  DecodeSpec spec = BaseSpec(ResidualMethod::kDeepNorm);
  spec.model = WithAdaptiveSoftmax(spec.model, sharing, kVocabulary / 4, kVocabulary / 2);
  spec.moved = true;
  spec.decoder.beam = {.beam = 2, .length_penalty = 0, .max_length_b = 14, .sampling = DrawOptions{}};
  spec.decoder.prefixes = true;
  for (const std::vector<int32_t>& prompt : RandomSources(prompts, 9, kVocabulary, 8)) {
    spec.starts.push_back({prompt, 1});
  }
  return spec;
}

TEST(DecoderTest, AnAdaptiveSoftmax) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(13, 20, kVocabulary, 6);
  for (const EmbeddingSharing sharing : {EmbeddingSharing::kAll, EmbeddingSharing::kNone}) {
    DecodeSpec spec = AdaptiveSpec(sharing, 13);
    const DecodeOutcome reference = Decode(spec, sources, /*evaluate=*/true);
    EXPECT_GT(ExpectEvaluatedProbabilities(reference), 13);
    spec.ranks = 3;
    spec.decoder.sentences = 1;
    EXPECT_EQ(FirstDifference(reference.translations, Decode(spec, sources).translations), "") << "3 ranks";
  }
}

// In one micro-batch.
TEST(DecoderTest, AnAdaptiveSoftmaxOfMoreRowsThanABlock) {
  constexpr int kSentences = 60;
  DecodeSpec spec = AdaptiveSpec(EmbeddingSharing::kNone, kSentences);
  spec.batch_rows = 1024;
  const DecodeOutcome outcome = Decode(spec, RandomSources(kSentences, 14, kVocabulary, 6), /*evaluate=*/true);
  EXPECT_GT(ExpectEvaluatedProbabilities(outcome), kAdaptiveRows);
}

TEST(DecoderTest, AnotherBlock) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(13, 20, kVocabulary, 6);
  for (const ResidualMethod method : {ResidualMethod::kPreLn, ResidualMethod::kNormFormer, ResidualMethod::kMhc}) {
    DecodeSpec spec = BaseSpec(method);
    spec.model.block = kModernBlock;
    spec.model.block.first_norm = method != ResidualMethod::kPreLn;
    if (method == ResidualMethod::kNormFormer) {
      spec.model.block.positions = Positions::kLearned, spec.model.block.rotary_local_theta = 0;
    }
    spec.moved = true;
    const DecodeOutcome outcome = Decode(spec, sources, /*evaluate=*/true);
    EXPECT_GE(ExpectEvaluatedProbabilities(outcome), 13);
    ExpectSameOn({{3, 2, 1, 1}}, spec, sources, outcome);
  }
}

// Also the gate makes a token's queries, keys and values wider than anything that the feed-forward writes.
TEST(DecoderTest, HeadsWiderThanTheModel) {
  DecodeSpec spec = BaseSpec(ResidualMethod::kPreLn);
  spec.model =
      SmallModel(ResidualMethod::kPreLn,
                 {.encoder_layers = 0, .decoder_layers = 4, .d_model = 16, .d_ff = 8, .vocabulary = kVocabulary});
  spec.model.block = kModernBlock;
  spec.moved = true;
  spec.decoder.beam = {.beam = 2, .length_penalty = 0, .max_length_b = 14, .sampling = DrawOptions{}};
  spec.decoder.sentences = 40;
  spec.decoder.prefixes = true;
  for (const std::vector<int32_t>& prompt : RandomSources(40, 9, kVocabulary, 8)) spec.starts.push_back({prompt, 1});
  const std::vector<std::vector<int32_t>> none(spec.starts.size());
  EXPECT_GE(ExpectEvaluatedProbabilities(Decode(spec, none, /*evaluate=*/true)), std::ssize(none));
}

// In front of each branch stand the method's norm and one more.
TEST(DecoderTest, ANormOfANorm) {
  DecodeSpec spec = BaseSpec(ResidualMethod::kPreLn);
  spec.model.encoder.branch_input_norm = spec.model.decoder.branch_input_norm = true;
  spec.moved = true;
  const DecodeOutcome outcome = Decode(spec, RandomSources(13, 20, kVocabulary, 6), /*evaluate=*/true);
  EXPECT_GE(ExpectEvaluatedProbabilities(outcome), 13);
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
  for (const ResidualMethod method :
       {ResidualMethod::kPreLn, ResidualMethod::kDlclPre, ResidualMethod::kDlclPost, ResidualMethod::kAttnRes}) {
    DecodeSpec spec = BaseSpec(method, 32);
    spec.model.encoder_layers = spec.model.decoder_layers = method == ResidualMethod::kPreLn ? 1 : 2;
    if (method == ResidualMethod::kAttnRes) {
      spec.model.encoder.attention_residual_block_sublayers = spec.model.decoder.attention_residual_block_sublayers = 3;
    }
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

// A rank receives each entry of a history once. 16 sublayers in blocks of two: 3, 5 and 7 entries in front of sublayers
// 4, 8 and 12, of which the receiving rank's chunk before has left 0, 3 and 5.
TEST(DecoderTest, AHistoryIsSentOnce) {
  DecodeSpec spec = BaseSpec(ResidualMethod::kAttnRes);
  spec.model = SmallModel(ResidualMethod::kAttnRes,
                          {.encoder_layers = 0, .decoder_layers = 8, .d_model = 32, .vocabulary = kVocabulary});
  spec.model.decoder.attention_residual_block_sublayers = 2;
  spec.ranks = 2;
  spec.pipeline.split = {9};
  const std::vector<std::vector<int32_t>> none(3);
  const DecodeOutcome one_border = Decode(spec, none);
  spec.pipeline = {.chunks = 2, .schedule = ScheduleKind::kInterleaved1F1B, .split = {5, 9, 13}};
  const DecodeOutcome three = Decode(spec, none);
  EXPECT_EQ(FirstDifference(one_border.translations, three.translations), "");
  EXPECT_GT(one_border.residual_bytes, 0);
  EXPECT_EQ(5 * three.residual_bytes, (3 + (5 - 3) + (7 - 5)) * one_border.residual_bytes);
}

// Sentences that do not fit are put back; what comes out stays the same. Room for one sentence, and for a little more
// than one of a large group.
TEST(DecoderTest, ATightCacheChangesNoBit) {
  struct Case {
    ResidualMethod method;
    int sentences, longest_source, max_length_b;
    int64_t cache_rows;
  };
  for (const Case& c : {Case{ResidualMethod::kDeepNorm, 30, 20, 6, 1 + 32 + 4 * (6 + 16 + 1)},
                        Case{ResidualMethod::kPreLn, 40, 6, 40, 340}}) {
    const std::vector<std::vector<int32_t>> sources = RandomSources(c.sentences, c.longest_source, kVocabulary, 9);
    DecodeSpec spec = BaseSpec(c.method);
    spec.decoder.beam.max_length_b = c.max_length_b;
    const DecodeOutcome roomy = Decode(spec, sources);
    spec.decoder.cache_limit_bytes = int64_t{7} * 2 * 64 * 4 * c.cache_rows;
    const DecodeOutcome tight = Decode(spec, sources);
    EXPECT_EQ(tight.capacity.cache_rows, c.cache_rows);
    EXPECT_LT(tight.bytes[0], roomy.bytes[0]);
    EXPECT_EQ(FirstDifference(roomy.translations, tight.translations), "");
  }
}

// A step's logits take 64 MiB; a beam of any size fits.
TEST(DecoderTest, LargeVocabulariesHaveFewerRows) {
  DecodeSpec spec = BaseSpec(ResidualMethod::kDeepNorm);
  spec.model.source_vocabulary = spec.model.target_vocabulary = 250000;
  const ModelPlan plan = ModelPlan::Make(spec.model);
  const PipelineLayout pipeline = MakePipelineLayout(plan, {}, {}, 1).value();
  for (const int32_t beam : {1, 4, 5, 64}) {
    spec.decoder.beam.beam = beam;
    const absl::StatusOr<DecodeCapacity> capacity = MakeDecodeCapacity(plan, pipeline, spec.decoder);
    ASSERT_TRUE(capacity.ok()) << capacity.status();
    EXPECT_EQ(capacity->rows, 64 / beam * beam);
  }
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
