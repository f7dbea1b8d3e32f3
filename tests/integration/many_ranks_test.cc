// A pipeline of 512 ranks, a sublayer each: it ends, and its bits are those of one rank.
#include "gtest/gtest.h"
#include "tests/integration/pipeline_run.h"

namespace hadal::testing {
namespace {

TEST(ManyRanks, FiveHundredAndTwelveRanksTrainLikeOne) {
  constexpr int kVocabulary = 20;
  RunSpec spec;
  // 2 · 103 + 3 · 102 = 512 sublayers.
  spec.model = SmallModel(ResidualMethod::kDeepNorm,
                          {.encoder_layers = 103, .decoder_layers = 102, .d_model = 8, .vocabulary = kVocabulary});
  spec.batch = {.micro_batches = 4, .source_tokens = 16, .target_tokens = 16};
  spec.steps = 2;
  const Corpus corpus = RandomCorpus(50, 7, kVocabulary, 3);
  const RunOutcome one = Train(spec, corpus);
  ASSERT_EQ(one.loss.size(), 2u);
  spec.ranks = 512;
  EXPECT_EQ(FirstDifference(one, Train(spec, corpus)), "");
}

}  // namespace
}  // namespace hadal::testing
