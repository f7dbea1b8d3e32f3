// Methods that are another method at a special setting: a run of one has the bits of a run of the other.

#include <map>

#include "gtest/gtest.h"
#include "tests/integration/model_loss.h"
#include "tests/integration/pipeline_run.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 71;

RunSpec Spec(ResidualMethod method) {
  RunSpec spec;
  spec.model = SmallModel(method, {.d_model = 32, .vocabulary = kVocabulary});
  spec.batch = {.micro_batches = 2, .source_tokens = 64, .target_tokens = 64};
  spec.ranks = 2;
  return spec;
}

RunOutcome RunOf(const RunSpec& spec) { return Train(spec, RandomCorpus(100, 16, kVocabulary, 3)); }

// The method alone: the other's initial weights are taken over.
RunSpec WithWeightsOf(RunSpec spec, const ModelOptions& other) {
  for (StackMethod ModelOptions::*stack : {&ModelOptions::encoder, &ModelOptions::decoder}) {
    StackMethod& to = spec.model.*stack;
    const StackMethod& from = other.*stack;
    to.query_key_gain = from.query_key_gain;
    to.value_gain = from.value_gain;
    to.output_gain = from.output_gain;
    to.cross_value_gain = from.cross_value_gain;
    to.cross_output_gain = from.cross_output_gain;
    to.ffn_gain = from.ffn_gain;
    to.ffn_output_factor = from.ffn_output_factor;
  }
  spec.model.distribution = other.distribution;
  return spec;
}

TEST(MethodIdentityTest, DeepNormWithoutItsGainsIsPostLn) {
  const RunSpec post = Spec(ResidualMethod::kPostLn);
  RunSpec deepnorm = WithWeightsOf(Spec(ResidualMethod::kDeepNorm), post.model);
  const RunOutcome reference = RunOf(post);
  EXPECT_NE(FirstDifference(reference, RunOf(deepnorm)), "") << "alpha still counts";
  deepnorm.model.encoder.residual_gain = deepnorm.model.decoder.residual_gain = 1;
  EXPECT_EQ(FirstDifference(reference, RunOf(deepnorm)), "");
}

TEST(MethodIdentityTest, BranchNormAtFullGrowthIsPostLn) {
  const RunOutcome reference =
      RunOf(WithWeightsOf(Spec(ResidualMethod::kPostLn), Spec(ResidualMethod::kBranchNorm).model));
  RunSpec branchnorm = Spec(ResidualMethod::kBranchNorm);
  branchnorm.model.branch_growth_updates = 2;  // updates 1, 2, 3: only the first is below
  EXPECT_NE(FirstDifference(reference, RunOf(branchnorm)), "");
  branchnorm.model.branch_growth_updates = 1;
  EXPECT_EQ(FirstDifference(reference, RunOf(branchnorm)), "");
  branchnorm.model.branch_growth = BranchGrowth::kExponential;
  branchnorm.model.branch_growth_steepness = 5;
  EXPECT_EQ(FirstDifference(reference, RunOf(branchnorm)), "");
}

// The loss of the first step at init, without dropout, with the method's constants for its depth.
double FirstLoss(ResidualMethod method, int layers) {
  RunSpec spec = Spec(method);
  spec.steps = 1;
  spec.model.encoder_layers = spec.model.decoder_layers = layers;
  ApplyResidualMethod(method, spec.model);
  spec.model.dropout = 0;
  return RunOf(spec).loss[0];
}

// Then depth does not show: the output head reads the target embedding.
TEST(MethodIdentityTest, StacksOfReZeroAndRFixupStartAsTheIdentity) {
  const double of_embedding = FirstLoss(ResidualMethod::kReZero, 1);
  EXPECT_EQ(FirstLoss(ResidualMethod::kReZero, 6), of_embedding);
  EXPECT_EQ(FirstLoss(ResidualMethod::kRFixup, 1), of_embedding);
  EXPECT_EQ(FirstLoss(ResidualMethod::kRFixup, 6), of_embedding);
  EXPECT_NE(FirstLoss(ResidualMethod::kTFixup, 1), of_embedding);
}

// A stack whose layers are the identity averages equal terms: with one layer 1 y_0 in front of it and (y_0 + y_1) / 2
// behind, exactly; with three, rows of thirds and quarters to rounding.
TEST(MethodIdentityTest, CombinationsOfIdentitiesAreTheIdentity) {
  for (const int layers : {1, 3}) {
    RunSpec spec = Spec(ResidualMethod::kReZero);
    spec.steps = 1;
    spec.model.encoder_layers = spec.model.decoder_layers = layers;
    spec.model.dropout = 0;
    const double plain = RunOf(spec).loss[0];
    spec.model.encoder.combine_layers = spec.model.decoder.combine_layers = true;
    const double combined = RunOf(spec).loss[0];
    EXPECT_NEAR(combined, plain, layers == 1 ? 0 : 1e-6 * plain);
  }
}

// At first a softmax averages: the embedding and one block's sum give half the stream, whose norm is that of all.
TEST(MethodIdentityTest, AttnResWithOneBlockStartsAsPreLn) {
  ModelOptions options = Spec(ResidualMethod::kPreLn).model;
  options.dropout = options.attention_dropout = options.activation_dropout = 0;
  ModelLoss plain(options);
  options.encoder.attention_residual_blocks = options.decoder.attention_residual_blocks = 1;
  ModelLoss reader(options);
  std::map<std::string, int32_t> by_name;
  for (size_t p = 0; p < plain.plan().parameters.size(); ++p) {
    by_name[plain.plan().ParameterName(static_cast<int32_t>(p))] = static_cast<int32_t>(p);
  }
  for (size_t p = 0; p < reader.plan().parameters.size(); ++p) {
    const Vector to = reader.Weight(static_cast<int32_t>(p));
    const auto from = by_name.find(reader.plan().ParameterName(static_cast<int32_t>(p)));
    if (from == by_name.end()) {
      std::fill_n(to.data, to.size, 0.0f);
    } else {
      std::copy_n(plain.Weight(from->second).data, to.size, to.data);
    }
  }
  const double loss = plain();
  EXPECT_NEAR(reader(), loss, 1e-4 * loss);
}

// 21 sublayers of a block in one segment, or in segments of four.
TEST(MethodIdentityTest, MoreReadersThanACallTakesChangeNoBit) {
  RunSpec spec = Spec(ResidualMethod::kAttnRes);
  spec.model.encoder.attention_residual_blocks = spec.model.decoder.attention_residual_blocks = 1;
  spec.ranks = 1;
  const RunOutcome whole = RunOf(spec);
  spec.pipeline.recompute_every = 4;
  EXPECT_EQ(FirstDifference(whole, RunOf(spec)), "");
}

TEST(MethodIdentityTest, B2tWithoutItsSkipIsPostLn) {
  const RunOutcome reference = RunOf(Spec(ResidualMethod::kPostLn));
  RunSpec b2t = Spec(ResidualMethod::kB2t);
  EXPECT_NE(FirstDifference(reference, RunOf(b2t)), "");
  b2t.model.encoder.skip_gain = b2t.model.decoder.skip_gain = 0;
  EXPECT_EQ(FirstDifference(reference, RunOf(b2t)), "");
}

}  // namespace
}  // namespace hadal::testing
