// What cross-entropy must do: one text for the CPU in each instruction set and for CUDA's kernels in each stored type.
// A backend's test says how it runs a problem, and adds what only it has.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/backend.h"

namespace hadal::testing {

struct CrossEntropyProblem {
  std::vector<float> logits;     // [targets.size(), vocabulary], dense
  std::vector<int32_t> targets;  // [rows]
  float label_smoothing = 0;
  float gradient_scale = 1;  // 0: the loss alone
  float z_loss = 0;

  int64_t rows() const { return std::ssize(targets); }
  int64_t vocabulary() const { return std::ssize(logits) / rows(); }
};

struct CrossEntropyOutcome {
  std::vector<float> logits, loss, nll, hits;
};

struct CrossEntropyBackend {
  std::string name;
  // A problem's outcome has the same bits for every `variation` below `variations`: an alignment, a number of threads,
  // an order of theirs.
  std::function<CrossEntropyOutcome(const CrossEntropyProblem& problem, int variation)> run;
  int variations;
  float (*stored)(float x);  // what it holds of a logit
  double roundoff = 0;       // the most that storing costs, in units of 2^-24 of the value; 0: nothing beyond fp32
};

class CrossEntropyConformance : public ::testing::TestWithParam<CrossEntropyBackend> {
 protected:
  static CrossEntropyOutcome Run(const CrossEntropyProblem& problem, int variation = 0) {
    return GetParam().run(problem, variation);
  }
  // Normal logits as the backend stores them, targets all over the vocabulary.
  static CrossEntropyProblem MakeProblem(int64_t rows, int64_t vocabulary, float size, float label_smoothing,
                                         float gradient_scale);
};

}  // namespace hadal::testing
