#include "tests/kernels/embedding_conformance.h"

#include <cmath>

#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

// One-token sentences, an empty one, and long ones; widths around vectors, a thread's eight columns and a warp's;
// dropout on and off.
template <typename Check>
void ForEachCase(const EmbeddingBackend& backend, const Check& check) {
  for (const std::vector<int32_t>& offsets : {std::vector<int32_t>{0, 1}, {0, 1, 2, 9, 9, 40}, {0, 60}, {0, 100}}) {
    for (const int64_t width : {1, 3, 7, 8, 16, 33, 64, 65, 264, 1100}) {
      for (const bool dropout : {false, true}) {
        SCOPED_TRACE(::testing::Message() << offsets.back() << " x " << width << ", dropout " << dropout);
        check(MakeEmbeddingCase(backend, offsets, width, dropout));
      }
    }
  }
}

}  // namespace

std::vector<int32_t> EmbeddingCase::RowPositions() const {
  std::vector<int32_t> in_sentence;
  for (size_t n = 0; n + 1 < offsets.size(); ++n) {
    for (int32_t r = offsets[n]; r < offsets[n + 1]; ++r) in_sentence.push_back(r - offsets[n]);
  }
  return in_sentence;
}

std::vector<double> EmbeddingReference::Forward() const {
  std::vector<double> x;
  for (std::size_t n = 0; n + 1 < offsets.size(); ++n) {
    for (int32_t row = offsets[n]; row < offsets[n + 1]; ++row) {
      for (int64_t c = 0; c < width; ++c) {
        const double sum = multiplier * table[tokens[row] * width + c] + positions[(row - offsets[n]) * width + c];
        x.push_back(sum * (factors.empty() ? 1 : factors[row * width + c]));
      }
    }
  }
  return x;
}

std::vector<double> EmbeddingReference::Backward(const std::vector<double>& dx) const {
  std::vector<double> d_table(table.size());
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    for (int64_t c = 0; c < width; ++c) {
      const double factor = factors.empty() ? 1 : factors[row * width + c];
      d_table[tokens[row] * width + c] += multiplier * factor * dx[row * width + c];
    }
  }
  return d_table;
}

std::vector<double> EmbeddingReference::BackwardOfPositions(const std::vector<double>& dx) const {
  std::vector<double> d_positions(positions.size());
  for (size_t n = 0; n + 1 < offsets.size(); ++n) {
    for (int64_t at = offsets[n] * width; at < offsets[n + 1] * width; ++at) {
      d_positions[at - offsets[n] * width] += (factors.empty() ? 1 : factors[at]) * dx[at];
    }
  }
  return d_positions;
}

EmbeddingReference ReferenceOf(const EmbeddingCase& c) {
  EmbeddingReference reference = {c.width, c.tokens, c.offsets, Widen(c.table), Widen(c.positions), {}, c.kMultiplier};
  for (int64_t i = 0; c.dropout.active() && i < c.rows * c.width; ++i) {
    reference.factors.push_back(DropoutFactor(c.dropout, i));
  }
  return reference;
}

EmbeddingCase MakeEmbeddingCase(const EmbeddingBackend& backend, const std::vector<int32_t>& offsets, int64_t width,
                                bool with_dropout) {
  const int64_t rows = offsets.back(), vocabulary = EmbeddingCase::kVocabulary;
  const auto stored = [](std::vector<float> values, float (*as)(float)) {
    for (float& x : values) x = as(x);
    return values;
  };
  std::vector<int32_t> tokens;  // several rows of one, and some of the vocabulary in no row
  for (int64_t r = 0; r < rows; ++r) tokens.push_back(static_cast<int32_t>((r * r + 3 * r) % (vocabulary - 2)));
  const RandomCounter counter = {.seed = 77, .step = 5, .micro_batch = 3};
  return {.rows = rows,
          .width = width,
          .tokens = tokens,
          .offsets = offsets,
          .dropout = {counter, with_dropout ? Dropout::Threshold(0.3) : 0},
          .table = stored(NormalValues(vocabulary * width, 1), backend.stored_table),
          .d_table = NormalValues(vocabulary * width, 4),
          .positions = NormalValues(rows * width, 2),
          .dx = stored(NormalValues(rows * width, 3), backend.stored_residual),
          .d_positions = NormalValues(rows * width, 5)};
}

TEST_P(EmbeddingConformance, ForwardMatchesTheReference) {
  const EmbeddingBackend& backend = GetParam();
  ForEachCase(backend, [&](const EmbeddingCase& c) {
    const std::vector<float> x = backend.run_forward(c, 0);
    EXPECT_TRUE(NearReference(x, ReferenceOf(c).Forward(), c.kMultiplier, 4, backend.residual_roundoff));
    for (int variation = 1; variation < backend.variations; ++variation) {
      EXPECT_TRUE(SameBits(x, backend.run_forward(c, variation))) << "variation " << variation;
    }
  });
}

TEST_P(EmbeddingConformance, WithoutPositionsTheyAreZero) {
  const EmbeddingBackend& backend = GetParam();
  EmbeddingCase c = MakeEmbeddingCase(backend, {0, 2, 9}, 33, true), zero = c;
  c.positions.clear();
  zero.positions.assign(zero.positions.size(), 0.0f);
  EXPECT_TRUE(SameBits(backend.run_forward(c, 0), backend.run_forward(zero, 0)));
}

TEST_P(EmbeddingConformance, BackwardAddsToWhatIsThere) {
  const EmbeddingBackend& backend = GetParam();
  ForEachCase(backend, [&](const EmbeddingCase& c) {
    std::vector<double> expected = ReferenceOf(c).Backward(Widen(c.dx));
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += c.d_table[i];
    std::vector<double> of_positions = ReferenceOf(c).BackwardOfPositions(Widen(c.dx));
    for (size_t i = 0; i < of_positions.size(); ++i) expected.push_back(of_positions[i] + c.d_positions[i]);
    const std::vector<float> gradients = backend.run_backward(c, 0);
    EXPECT_TRUE(NearReference(gradients, expected, c.kMultiplier * std::sqrt(c.rows), 8));
    for (int variation = 1; variation < backend.variations; ++variation) {
      EXPECT_TRUE(SameBits(gradients, backend.run_backward(c, variation))) << "variation " << variation;
    }
  });
}

}  // namespace hadal::testing
