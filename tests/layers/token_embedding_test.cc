// Against the formula x = dropout(sqrt(d)·E[token] + PE[position]), positions counted from 2, spelled out a number at a
// time.
#include "layers/token_embedding.h"
#include "layers/parameter_store.h"

#include <cmath>

#include "gtest/gtest.h"

namespace hadal {
namespace {

constexpr int32_t kWidth = 6;

class TokenEmbeddingTest : public ::testing::Test {
 protected:
  TokenEmbeddingTest()
      : plan_(ModelPlan::Make({.encoder_layers = 1,
                               .decoder_layers = 1,
                               .d_model = kWidth,
                               .d_ff = 8,
                               .heads = 1,
                               .source_vocabulary = 9,
                               .target_vocabulary = 9,
                               .max_positions = 5,
                               .dropout = 0.5})),
        parameters_(plan_, {0, 1, 2, 3, 4, 5, 6, 7}, Purpose::kTraining, layout_),
        workspace_(plan_, {.source_rows = 8, .target_rows = 8, .max_length = 8}, stream_, Purpose::kTraining, layout_),
        source_(plan_, plan_.source_embedding(), 8, Purpose::kTraining, layout_),
        target_(plan_, plan_.target_embedding(), 8, Purpose::kTraining, layout_),
        arena_(Arena::Allocate(layout_).value()) {
    parameters_.Bind(arena_);
    workspace_.Bind(arena_);
    source_.Bind(arena_);
    target_.Bind(arena_);
    const Matrix table = Table();
    for (int64_t i = 0; i < table.rows * kWidth; ++i) table.data[i] = 0.01f * static_cast<float>(i) - 0.2f;
    // Two sentences a side; the decoder's input differs from its target and from the source.
    batch_.micro_batch = 3;
    batch_.source = {4, 5, 2, 8, 2};
    batch_.source_offsets = {0, 3, 5};
    batch_.target_input = {2, 7, 6, 5, 2, 4};
    batch_.target = {7, 6, 5, 2, 4, 2};
    batch_.target_offsets = {0, 4, 6};
  }

  Matrix Table() const { return parameters_.Weight(plan_.sublayers[plan_.source_embedding()].table); }
  SublayerContext Context(Purpose purpose) const {
    return {.stream = stream_,
            .parameters = parameters_,
            .workspace = workspace_,
            .batch = batch_,
            .scalars = {.seed = 21, .step = 4, .training = purpose == Purpose::kTraining}};
  }
  std::vector<float> Forward(const TokenEmbedding& embedding, int64_t rows, Purpose purpose) const {
    std::vector<float> x(rows * kWidth, -7);
    embedding.Forward(Context(purpose), {.y = Matrix(x.data(), rows, kWidth)});
    return x;
  }

  const Stream stream_ = Stream::Cpu(1);
  const ModelPlan plan_;
  ArenaLayout layout_;
  ParameterStore parameters_;
  Workspace workspace_;
  TokenEmbedding source_, target_;
  Arena arena_;
  PackedBatch batch_;
};

// fairseq's: half sines, half cosines, of pos / 10000^(i / (d/2 - 1)).
double Position(int64_t position, int64_t column) {
  const int64_t half = kWidth / 2, i = column % half;
  const double angle = static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(i) / (half - 1));
  return column < half ? std::sin(angle) : std::cos(angle);
}

TEST_F(TokenEmbeddingTest, RowsAreScaledTokensAtTheirPlaceInTheSentenceCountedFromTwo) {
  const struct {
    const TokenEmbedding& embedding;
    std::vector<int32_t> tokens, positions;
  } sides[] = {{source_, {4, 5, 2, 8, 2}, {2, 3, 4, 2, 3}}, {target_, {2, 7, 6, 5, 2, 4}, {2, 3, 4, 5, 2, 3}}};
  for (const auto& side : sides) {
    const std::vector<float> x = Forward(side.embedding, std::ssize(side.tokens), Purpose::kInference);
    for (size_t r = 0; r < side.tokens.size(); ++r) {
      for (int64_t c = 0; c < kWidth; ++c) {
        const double expected = std::sqrt(6.0) * Table().row(side.tokens[r])[c] + Position(side.positions[r], c);
        EXPECT_NEAR(x[r * kWidth + c], expected, 1e-6) << "row " << r << ", column " << c;
      }
    }
  }
}

// Kept elements are doubled at p = 1/2; the masks of source and target are not one mask.
TEST_F(TokenEmbeddingTest, InTrainingElementsAreDroppedOrScaled) {
  std::vector<bool> kept[2];
  for (const bool is_target : {false, true}) {
    const TokenEmbedding& embedding = is_target ? target_ : source_;
    const std::vector<float> plain = Forward(embedding, is_target ? 6 : 5, Purpose::kInference);
    const std::vector<float> dropped = Forward(embedding, is_target ? 6 : 5, Purpose::kTraining);
    for (size_t i = 0; i < plain.size(); ++i) {
      kept[is_target].push_back(dropped[i] != 0);
      if (dropped[i] == 0) continue;
      EXPECT_FLOAT_EQ(dropped[i], 2 * plain[i]);
    }
    EXPECT_EQ(Forward(embedding, is_target ? 6 : 5, Purpose::kTraining), dropped) << "the mask is counted, not drawn";
  }
  kept[1].resize(kept[0].size());
  EXPECT_NE(kept[0], kept[1]);
}

// d_x through what the forward kept, times sqrt(d), to the rows of this use's tokens; added to what is there.
TEST_F(TokenEmbeddingTest, BackwardAddsEachRowsGradientToItsToken) {
  const std::vector<float> plain = Forward(target_, 6, Purpose::kInference),
                           dropped = Forward(target_, 6, Purpose::kTraining);
  std::vector<float> d_x;
  std::vector<double> expected(9 * kWidth, 1.0);
  for (int64_t i = 0; i < 6 * kWidth; ++i) {
    d_x.push_back(static_cast<float>(i) - 10);
    const double mask = dropped[i] == 0 ? 0 : 2;
    expected[batch_.target_input[i / kWidth] * kWidth + i % kWidth] += std::sqrt(6.0) * mask * d_x[i];
  }
  const Matrix gradient = parameters_.TableGradient(plan_.target_embedding());
  const Matrix of_source = parameters_.TableGradient(plan_.source_embedding());
  for (int64_t i = 0; i < 9 * kWidth; ++i) gradient.data[i] = 1;
  target_.BackwardInput(Context(Purpose::kTraining), {.d_y = Matrix(d_x.data(), 6, kWidth)}, 0);
  for (int64_t i = 0; i < 9 * kWidth; ++i) {
    EXPECT_NEAR(gradient.data[i], expected[i], 1e-4) << "token " << i / kWidth;
    EXPECT_EQ(of_source.data[i], 0) << "another use's";
  }
}

}  // namespace
}  // namespace hadal
