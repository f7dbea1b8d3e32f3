#include "tools/bench/bench_step_report.h"

#include "gtest/gtest.h"

#include "layers/method_presets.h"

namespace hadal {
namespace {

ModelOptions SmallModel(int encoder_layers) {
  ModelOptions model{.encoder_layers = encoder_layers,
                     .decoder_layers = 3,
                     .d_model = 8,
                     .d_ff = 24,
                     .heads = 2,
                     .source_vocabulary = 50,
                     .target_vocabulary = 50,
                     .max_positions = 16};
  ApplyResidualMethod(ResidualMethod::kDeepNorm, model);
  return model;
}

// Two sentence pairs of 3 and 4 source rows, 5 and 1 target rows, and padding rows that must not count.
PackedBatch Batch() {
  PackedBatch batch{.source_offsets = {0, 3, 7}, .target_offsets = {0, 5, 6}, .samples = {0, 1}};
  batch.source.assign(8, kPaddingRow);
  batch.target_input.assign(8, kPaddingRow);
  batch.target.assign(8, kPaddingRow);
  return batch;
}

// By hand, multiply-adds: of an encoder layer 4 + 2·3 matrices of d² for 7 rows, of a decoder layer as many for 6 rows,
// and cross-attention's 2 for 6 rows and 2 for 7.
constexpr double kD2 = 64, kEncoder = 7 * 10 * kD2, kDecoder = (6 * 10 + 6 * 2 + 7 * 2) * kD2, kHead = 6.0 * 8 * 50;
// Pairs that attend: source 9 + 16; target, causal, 15 + 1; cross 15 + 4.
constexpr double kEncoderPairs = 8 * 25, kDecoderPairs = 8 * (16 + 19);

TEST(StepFlops, CountsByHand) {
  const ModelPlan plan = ModelPlan::Make(SmallModel(2));
  const PackedBatch batches[] = {Batch(), Batch()};
  const StepFlops flops = StepFlopsOf(plan, batches, /*recompute=*/false);
  const double layers = 2 * kEncoder + 3 * kDecoder, pairs = 2 * kEncoderPairs + 3 * kDecoderPairs;
  EXPECT_DOUBLE_EQ(flops.linear, 2 * 6 * (layers + kHead));
  EXPECT_DOUBLE_EQ(flops.attention, 2 * 12 * pairs);
  EXPECT_DOUBLE_EQ(flops.recomputed_linear, 0);
  EXPECT_DOUBLE_EQ(flops.recomputed_attention, 2 * 2 * pairs);
  const StepFlops twice = StepFlopsOf(plan, batches, /*recompute=*/true);
  EXPECT_DOUBLE_EQ(twice.model(), flops.model());
  EXPECT_DOUBLE_EQ(twice.recomputed_linear, 2 * 2 * layers);
  EXPECT_DOUBLE_EQ(twice.recomputed_attention, 2 * 6 * pairs);
  EXPECT_DOUBLE_EQ(twice.executed(), twice.model() + 2 * 2 * layers + 2 * 6 * pairs);
}

TEST(StepFlops, ALanguageModelHasNoCrossAttention) {
  const ModelPlan plan = ModelPlan::Make(SmallModel(0));
  PackedBatch batch = Batch();
  batch.source.clear();
  batch.source_offsets.clear();
  const StepFlops flops = StepFlopsOf(plan, {&batch, 1}, false);
  EXPECT_DOUBLE_EQ(flops.linear, 6 * (3 * 6 * 10 * kD2 + kHead));
  EXPECT_DOUBLE_EQ(flops.attention, 12 * 3 * 8 * 16);
}

}  // namespace
}  // namespace hadal
