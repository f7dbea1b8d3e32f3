// What the token embedding must do, forward and backward: one text for the CPU in each instruction set and for CUDA's
// kernels in each pair of stored types. A backend's test says how it runs a case, and adds what only it has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/random.h"
#include "tests/support/backend.h"

namespace hadal::testing {

struct EmbeddingCase {
  static constexpr int64_t kVocabulary = 13;
  static constexpr float kMultiplier = 2.5f;

  int64_t rows = 0, width = 0;
  std::vector<int32_t> tokens, offsets;  // [rows], [sentences + 1]
  Dropout dropout;
  std::vector<float> table, d_table;              // [vocabulary, width]; a backward adds to d_table
  std::vector<float> positions, dx, d_positions;  // [rows, width]; a backward adds to d_positions

  std::vector<int32_t> RowPositions() const;  // [rows] in their sentences
};

// Token embedding by plain loops in double precision. Matrices are dense.
struct EmbeddingReference {
  int64_t width = 0;
  std::vector<int32_t> tokens;    // [rows]
  std::vector<int32_t> offsets;   // [sentences + 1]
  std::vector<double> table;      // [vocabulary, width]
  std::vector<double> positions;  // [longest sentence, width]
  std::vector<double> factors;    // dropout factors [rows, width], or empty
  double multiplier = 1;

  std::vector<double> Forward() const;
  // d (Σ dx ⊙ x) / d table
  std::vector<double> Backward(const std::vector<double>& dx) const;
  // d (Σ dx ⊙ x) / d positions
  std::vector<double> BackwardOfPositions(const std::vector<double>& dx) const;
};
EmbeddingReference ReferenceOf(const EmbeddingCase& c);

struct EmbeddingBackend {
  std::string name;
  // x, and what d_table becomes, with d_positions behind it, dense. They have the same bits for every `variation`
  // below `variations`: an alignment, a number of threads, an order of theirs.
  std::function<std::vector<float>(const EmbeddingCase&c, int variation)> run_forward, run_backward;
  int variations;
  float (*stored_table)(float x);     // what it holds of a float in the table
  float (*stored_residual)(float x);  // … in x and dx
  double residual_roundoff =
      0;  // the most that storing x costs, in units of 2^-24 of the value; 0: nothing beyond fp32
};

// A case of values that the backend holds exactly, so that the reference starts from the same numbers.
EmbeddingCase MakeEmbeddingCase(const EmbeddingBackend& backend, const std::vector<int32_t>& offsets, int64_t width,
                                bool with_dropout);

class EmbeddingConformance : public ::testing::TestWithParam<EmbeddingBackend> {};

}  // namespace hadal::testing
