#include "layers/border.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

ModelPlan Plan() {
  ModelOptions options = TinyModel({.encoder_layers = 2, .decoder_layers = 2, .d_ff = 16, .heads = 2});
  return ModelPlan::Make(options);
}

TEST(BorderEdgesTest, TheStreamIsAloneUpToTheDecoderAndWithoutAnEncoder) {
  const ModelPlan plan = Plan();
  const ModelPlan decoder = ModelPlan::Make(
      {.encoder_layers = 0, .decoder_layers = 2, .d_model = 8, .d_ff = 16, .heads = 2, .target_vocabulary = 20});
  const auto expect_alone = [](const ModelPlan& of, int32_t last, Stack rows) {
    for (int32_t position = 1; position <= last; ++position) {
      const std::vector<Edge> edges = BorderEdges(of, position);
      ASSERT_EQ(edges.size(), 1u);
      EXPECT_EQ(edges[0].kind, EdgeKind::kResidual);
      EXPECT_EQ(edges[0].rows, rows);
    }
  };
  expect_alone(plan, plan.target_embedding(), Stack::kEncoder);
  expect_alone(decoder, decoder.output_head(), Stack::kDecoder);
}

TEST(BorderEdgesTest, DecoderCarriesTheMemoryWhileItIsRead) {
  const ModelPlan plan = Plan();
  const int32_t last_cross = plan.output_head() - 2;  // self, cross, feed-forward, head
  for (int32_t position = plan.target_embedding() + 1; position <= plan.output_head(); ++position) {
    const std::vector<Edge> edges = BorderEdges(plan, position);
    EXPECT_EQ(edges[0].rows, Stack::kDecoder);
    EXPECT_EQ(edges.size(), position <= last_cross ? 2u : 1u) << position;
  }
}

// The residual stream is the embedding and one output a layer; behind a stack it is one tensor again.
TEST(BorderEdgesTest, CombinedLayersSendEverythingSoFar) {
  ModelOptions options = Plan().options;
  options.encoder_layers = 3;
  options.encoder.combine_layers = options.decoder.combine_layers = true;
  const ModelPlan plan = ModelPlan::Make(options);
  const ActivationCapacity capacity{.source_rows = 10, .target_rows = 7, .max_length = 10};
  std::vector<int64_t> entries;
  for (int32_t position = 1; position <= plan.output_head(); ++position) {
    if (plan.NextCut(position) != position) continue;
    const std::vector<Edge> edges = BorderEdges(plan, position);
    EXPECT_EQ(edges[0].kind, EdgeKind::kResidual);
    entries.push_back(edges[0].entries);
    EXPECT_EQ(EdgeBytes(edges[0], /*gradients=*/false, capacity, 8),
              edges[0].entries * capacity.rows(edges[0].rows) * 8 * 4);
    if (edges.size() > 1) {
      EXPECT_EQ(edges[1].entries, 1);
    }
  }
  // In front of three encoder layers, of the target embedding, of two decoder layers and of the head.
  EXPECT_EQ(entries, (std::vector<int64_t>{1, 2, 3, 1, 1, 2, 1}));
}

// Behind the first sublayer of a stack until its end; fp32 whatever products read.
TEST(BorderEdgesTest, ASecondStreamIsOneEdgeMoreInsideItsStack) {
  ModelOptions options = Plan().options;
  options.decoder.second_stream_gain = 0.05;
  ModelPlan plan = ModelPlan::Make(options);
  plan.compute_storage = Storage::kBFloat16;
  for (int32_t position = 1; position <= plan.output_head(); ++position) {
    int seconds = 0;
    for (const Edge& edge : BorderEdges(plan, position)) {
      if (edge.kind != EdgeKind::kSecondStream) continue;
      ++seconds;
      EXPECT_EQ(edge.rows, Stack::kDecoder);
      EXPECT_TRUE(edge.values == Storage::kFloat32 && edge.gradient == Storage::kFloat32);
    }
    EXPECT_EQ(seconds, position > plan.target_embedding() + 1 && position < plan.output_head() ? 1 : 0) << position;
  }
}

// One entry each inside the stack, behind its first sublayer; in front of it and behind it there is one stream.
TEST(BorderEdgesTest, SeveralStreamsAreEntriesOfTheResidual) {
  ModelOptions options = Plan().options;
  options.decoder.norm = NormPlacement::kPre;
  options.decoder.residual_streams = 3;
  const ModelPlan plan = ModelPlan::Make(options);
  for (int32_t position = 1; position <= plan.output_head(); ++position) {
    const bool inside = position > plan.target_embedding() + 1 && position < plan.output_head();
    for (const Edge& edge : BorderEdges(plan, position)) {
      EXPECT_EQ(edge.entries, inside && edge.kind == EdgeKind::kResidual ? 3 : 1) << position;
    }
  }
}

// With blocks of 4 of the decoder's 6 sublayers: the embedding, and behind the fourth a block's sum; within a block its
// sum so far. Behind the stack there is one tensor.
TEST(BorderEdgesTest, ReadersOfBlocksSendFinishedSumsAndTheOpenOne) {
  ModelOptions options = Plan().options;
  options.decoder.norm = NormPlacement::kPre;
  options.decoder.attention_residual_block_sublayers = 4;
  const ModelPlan plan = ModelPlan::Make(options);
  std::vector<int64_t> entries, seconds;
  for (int32_t position = plan.target_embedding() + 1; position <= plan.output_head(); ++position) {
    const std::vector<Edge> edges = BorderEdges(plan, position);
    entries.push_back(edges[0].entries);
    seconds.push_back(std::ranges::count(edges, EdgeKind::kSecondStream, &Edge::kind));
  }
  EXPECT_EQ(entries, (std::vector<int64_t>{1, 1, 1, 1, 2, 2, 1}));
  EXPECT_EQ(seconds, (std::vector<int64_t>{0, 1, 1, 1, 0, 1, 0}));
}

TEST(BorderEdgesTest, InBf16EveryEdgeSaysHowItIsStored) {
  constexpr Storage kWide = Storage::kFloat32, kNarrow = Storage::kBFloat16;
  for (const NormPlacement norm : {NormPlacement::kPost, NormPlacement::kPre, NormPlacement::kNone}) {
    ModelOptions options = Plan().options;
    options.encoder.norm = options.decoder.norm = norm;
    ModelPlan plan = ModelPlan::Make(options);
    plan.compute_storage = kNarrow;
    const Storage stream = norm == NormPlacement::kPost ? kNarrow : kWide;
    const int32_t last = plan.output_head(), between = plan.target_embedding();
    for (int32_t position = 1; position <= last; ++position) {
      const std::vector<Edge> edges = BorderEdges(plan, position);
      EXPECT_EQ(edges[0].values, position == between || position == last ? kNarrow : stream) << position;
      EXPECT_EQ(edges[0].gradient, position == between ? kWide : stream) << position;
      if (edges.size() < 2) continue;
      EXPECT_EQ(edges[1].values, kNarrow);
      EXPECT_EQ(edges[1].gradient, kWide);
    }
  }
  const ActivationCapacity capacity{.source_rows = 10, .target_rows = 7, .max_length = 10};
  EXPECT_EQ(EdgeBytes({.values = kNarrow}, /*gradients=*/false, capacity, 8), 10 * 8 * 2);
  EXPECT_EQ(EdgeBytes({.values = kNarrow}, /*gradients=*/true, capacity, 8), 10 * 8 * 4);
}

}  // namespace
}  // namespace hadal
