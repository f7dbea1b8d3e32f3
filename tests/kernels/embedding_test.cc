#include "kernels/embedding.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/embedding_reference.h"
#include "tests/support/finite_difference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

constexpr int64_t kVocabulary = 11;
constexpr float kMultiplier = 2.5f;
constexpr int64_t kWidths[] = {1, 3, 16, 33, 64, 1100};

struct Case {
  Case(std::vector<int32_t> sentence_offsets, int64_t width, bool with_dropout)
      : rows(sentence_offsets.back()), width(width), offsets(std::move(sentence_offsets)) {
    dropout = {{.seed = 3, .step = 1, .micro_batch = 6}, with_dropout ? Dropout::Threshold(0.25) : 0};
    for (int64_t r = 0; r < rows; ++r) tokens.push_back(static_cast<int32_t>((r * r + 3 * r) % kVocabulary));
    table = NormalValues(kVocabulary * width, 1), positions = NormalValues(rows * width, 2);
    dx = NormalValues(rows * width, 3), d_table = NormalValues(kVocabulary * width, 4);
    reference = {width, tokens, offsets, Widen(table), Widen(positions), {}, kMultiplier};
    for (int64_t i = 0; with_dropout && i < rows * width; ++i) {
      reference.factors.push_back(DropoutFactor(dropout, i));
    }
  }

  std::vector<float> Forward(int threads) const {
    StridedMatrix e(table, kVocabulary, width), p(positions, rows, width);
    StridedMatrix x(std::vector<float>(rows * width, NAN), rows, width);
    EmbeddingForward(Stream::Cpu(threads), {.tokens = {tokens.data(), rows},
                                            .offsets = {offsets.data(), static_cast<int64_t>(offsets.size())},
                                            .table = e.view(),
                                            .positions = p.view(),
                                            .multiplier = kMultiplier,
                                            .dropout = dropout,
                                            .x = x.view()});
    EXPECT_TRUE(x.guards_intact());
    return x.dense();
  }

  std::vector<float> Backward(int threads) const {
    StridedMatrix gradient(dx, rows, width), sum(d_table, kVocabulary, width);
    EmbeddingBackward(Stream::Cpu(threads), {.tokens = {tokens.data(), rows},
                                             .dx = gradient.view(),
                                             .multiplier = kMultiplier,
                                             .dropout = dropout,
                                             .d_table = sum.view()});
    EXPECT_TRUE(sum.guards_intact());
    return sum.dense();
  }

  int64_t rows, width;
  std::vector<int32_t> tokens, offsets;
  Dropout dropout;
  std::vector<float> table, positions, dx, d_table;
  EmbeddingReference reference;
};

// One-token sentences, an empty one, and long ones; dropout on and off.
template <typename Check>
void ForEachCase(const Check& check) {
  for (const std::vector<int32_t>& offsets : {std::vector<int32_t>{0, 1}, {0, 1, 2, 9, 9, 40}, {0, 100}}) {
    for (const int64_t width : kWidths) {
      for (const bool dropout : {false, true}) {
        SCOPED_TRACE(::testing::Message() << offsets.back() << " x " << width << ", dropout " << dropout);
        check(Case(offsets, width, dropout));
      }
    }
  }
}

TEST(EmbeddingReferenceTest, GradientsMatchFiniteDifferences) {
  Case c({0, 2, 7}, 3, true);
  const std::vector<double> dx = Widen(c.dx);
  const auto loss = [&] { return Dot(c.reference.Forward(), dx); };
  EXPECT_TRUE(IsGradient(c.reference.table, loss, c.reference.Backward(dx)));
}

TEST(EmbeddingForwardTest, MatchesReference) {
  ForEachInstructionSet([] {
    ForEachCase([](const Case& c) { EXPECT_TRUE(NearReference(c.Forward(1), c.reference.Forward(), kMultiplier, 4)); });
  });
}

TEST(EmbeddingBackwardTest, AddsToWhatIsThere) {
  ForEachInstructionSet([] {
    ForEachCase([](const Case& c) {
      std::vector<double> expected = c.reference.Backward(Widen(c.dx));
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += c.d_table[i];
      EXPECT_TRUE(NearReference(c.Backward(1), expected, kMultiplier * std::sqrt(c.rows), 8));
    });
  });
}

TEST(EmbeddingTest, ThreadsChangeNoBit) {
  ForEachCase([](const Case& c) {
    for (int threads = 2; threads <= 3; ++threads) {
      EXPECT_TRUE(SameBits(c.Forward(1), c.Forward(threads)));
      EXPECT_TRUE(SameBits(c.Backward(1), c.Backward(threads)));
    }
  });
}

TEST(EmbeddingForwardTest, PositionsOfRowsStandForOffsets) {
  ForEachCase([](const Case& c) {
    std::vector<int32_t> positions;
    for (size_t n = 0; n + 1 < c.offsets.size(); ++n) {
      for (int32_t r = c.offsets[n]; r < c.offsets[n + 1]; ++r) positions.push_back(r - c.offsets[n]);
    }
    std::vector<float> x(c.rows * c.width);
    EmbeddingForward(Stream::Cpu(2), {.tokens = {c.tokens.data(), c.rows},
                                      .row_positions = {positions.data(), c.rows},
                                      .table = {c.table.data(), kVocabulary, c.width},
                                      .positions = {c.positions.data(), c.rows, c.width},
                                      .multiplier = kMultiplier,
                                      .dropout = c.dropout,
                                      .x = {x.data(), c.rows, c.width}});
    EXPECT_TRUE(SameBits(x, c.Forward(1)));
  });
}

TEST(SinusoidalPositionsTest, FollowsFairseq) {
  std::vector<float> table(5 * 8);
  FillSinusoidalPositions({table.data(), 5, 8});
  for (int p = 0; p < 5; ++p) {
    for (int i = 0; i < 4; ++i) {
      const double angle = (p + 2) / std::pow(10000.0, i / 3.0);
      EXPECT_NEAR(table[p * 8 + i], std::sin(angle), 1e-7);
      EXPECT_NEAR(table[p * 8 + 4 + i], std::cos(angle), 1e-7);
    }
  }
  EXPECT_FLOAT_EQ(table[0], 0.9092974f);  // sin(2): the first token stands at position 2
}

TEST(SinusoidalPositionsTest, NarrowAndOddWidths) {
  std::vector<float> one(2, NAN), two(2 * 2, NAN), five(2 * 5, NAN);
  FillSinusoidalPositions({one.data(), 2, 1});
  EXPECT_EQ(one, (std::vector<float>{0, 0}));
  FillSinusoidalPositions({two.data(), 2, 2});
  EXPECT_FLOAT_EQ(two[2], std::sin(3.0f));
  EXPECT_FLOAT_EQ(two[3], std::cos(3.0f));
  FillSinusoidalPositions({five.data(), 2, 5});
  EXPECT_EQ(five[4], 0);
  EXPECT_FLOAT_EQ(five[1], std::sin(2e-4f));
}

TEST(EmbeddingDeathTest, NamesBadTokensAndLongSentences) {
  const std::vector<int32_t> tokens = {0, 7}, offsets = {0, 2};
  std::vector<float> table(7 * 4), positions(2 * 4), x(2 * 4);
  EmbeddingForwardArgs args = {.tokens = {tokens.data(), 2},
                               .offsets = {offsets.data(), 2},
                               .table = {table.data(), 7, 4},
                               .positions = {positions.data(), 2, 4},
                               .x = {x.data(), 2, 4}};
  EXPECT_DEATH(EmbeddingForward(Stream::Cpu(1), args), "7 vs. 7");
  args.positions.rows = 1;
  EXPECT_DEATH(EmbeddingForward(Stream::Cpu(1), args), "2 vs. 1");
}

}  // namespace
}  // namespace hadal::testing
