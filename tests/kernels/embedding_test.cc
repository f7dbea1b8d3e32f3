#include "kernels/embedding.h"

#include "gtest/gtest.h"
#include "runtime/stream.h"
#include "tests/kernels/embedding_conformance.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/finite_difference.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

struct Variation {
  int threads;
  bool by_row;  // positions of rows stand for the sentences' offsets
  int64_t offset, padding;
};
constexpr Variation kVariations[] = {
    {1, false, 1, 3}, {1, true, 0, 0}, {2, false, 0, 0}, {2, true, 3, 5}, {3, false, 1, 3}};

StridedMatrix Strided(const std::vector<float>& values, int64_t rows, const EmbeddingCase& c, const Variation& v) {
  return {values, rows, c.width, v.offset, v.padding};
}

std::vector<float> Forward(const EmbeddingCase& c, int variation) {
  const Variation& v = kVariations[variation];
  const bool positioned = !c.positions.empty();
  StridedMatrix table = Strided(c.table, c.kVocabulary, c, v);
  StridedMatrix positions = Strided(c.positions, positioned ? c.rows : 0, c, v);
  StridedMatrix x = Strided(std::vector<float>(c.rows * c.width, NAN), c.rows, c, v);
  const std::vector<int32_t> row_positions = c.RowPositions();
  EmbeddingForwardArgs args = {.tokens = {c.tokens.data(), c.rows},
                               .table = table.view(),
                               .positions = positioned ? ConstMatrix(positions.view()) : ConstMatrix(),
                               .multiplier = c.kMultiplier,
                               .dropout = c.dropout,
                               .x = x.view()};
  if (v.by_row) {
    args.row_positions = {row_positions.data(), c.rows};
  } else {
    args.offsets = {c.offsets.data(), std::ssize(c.offsets)};
  }
  EmbeddingForward(Stream::Cpu(v.threads), args);
  EXPECT_TRUE(x.guards_intact());
  return x.dense();
}

std::vector<float> Backward(const EmbeddingCase& c, int variation) {
  const Variation& v = kVariations[variation];
  StridedMatrix dx = Strided(c.dx, c.rows, c, v), d_table = Strided(c.d_table, c.kVocabulary, c, v);
  StridedMatrix d_positions = Strided(c.d_positions, c.rows, c, v);
  EmbeddingBackward(Stream::Cpu(v.threads), {.tokens = {c.tokens.data(), c.rows},
                                             .dx = dx.view(),
                                             .multiplier = c.kMultiplier,
                                             .dropout = c.dropout,
                                             .d_table = d_table.view(),
                                             .d_positions = d_positions.view(),
                                             .offsets = {c.offsets.data(), std::ssize(c.offsets)}});
  EXPECT_TRUE(d_table.guards_intact() && d_positions.guards_intact());
  std::vector<float> gradients = d_table.dense();
  for (const float x : d_positions.dense()) gradients.push_back(x);
  return gradients;
}

float AsItIs(float x) { return x; }

std::vector<EmbeddingBackend> Backends() {
  return BackendsOfInstructionSets([](int64_t target) -> EmbeddingBackend {
    return {.run_forward = Only(target, Forward),
            .run_backward = Only(target, Backward),
            .variations = std::size(kVariations),
            .stored_table = AsItIs,
            .stored_residual = AsItIs};
  });
}
INSTANTIATE_TEST_SUITE_P(Cpu, EmbeddingConformance, ::testing::ValuesIn(Backends()), BackendName());

TEST(EmbeddingReferenceTest, GradientsMatchFiniteDifferences) {
  const EmbeddingCase c = MakeEmbeddingCase(Backends().front(), {0, 2, 7}, 3, true);
  EmbeddingReference reference = ReferenceOf(c);
  const std::vector<double> dx = Widen(c.dx);
  const auto loss = [&] { return Dot(reference.Forward(), dx); };
  EXPECT_TRUE(IsGradient(reference.table, loss, reference.Backward(dx)));
  EXPECT_TRUE(IsGradient(reference.positions, loss, reference.BackwardOfPositions(dx)));
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

}  // namespace
}  // namespace hadal::testing
