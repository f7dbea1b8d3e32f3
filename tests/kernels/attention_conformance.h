// What attention must do, forward and backward: one text for the CPU in each instruction set and for CUDA's kernels in
// each stored type. A backend's test says how it runs a problem, and adds what only it has.
#pragma once

#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "runtime/random.h"
#include "tests/support/attention_reference.h"
#include "tests/support/backend.h"

namespace hadal::testing {

struct AttentionProblem {
  std::string name;
  std::vector<int32_t> query_lengths, key_lengths;
  int32_t heads = 1;
  int64_t head_width = 1;
  bool causal = false;
  double dropout_rate = 0;
  int32_t group = 1;
  int64_t half = 0;  // rotary positions: pairs of columns that turn
  int32_t reach = kWholeSentence;

  int64_t columns() const { return heads * head_width; }
  int64_t key_columns() const { return columns() / group; }
  std::vector<float> Angles() const;          // [129 or more positions, 2 · half]; empty: nothing turns
  std::vector<int32_t> QueryOffsets() const;  // [sentences + 1]
  std::vector<int32_t> KeyOffsets() const;
  Dropout dropout() const;
};

// Inputs and outputs, dense [rows, columns].
struct AttentionTensors {
  std::vector<float> q, k, v, d_output;
  std::vector<float> output, log_sum_exp, d_q, d_k, d_v;
};

struct AttentionBackend {
  std::string name;
  // Fills in the outputs. The problems' results have the same bits for every `variation` below `variations`: an
  // alignment, a number of threads, an order of theirs.
  std::function<void(const AttentionProblem& problem, AttentionTensors& tensors, int variation)> run;
  int variations;
  float (*stored)(float x);          // what it holds of a float
  double multiple = 64;              // tolerance of an element of what it stores, in units of 2^-24
  double relative_error = 1e-6;      // of a tensor, in L2
  double signed_error = 1e-7;        // of all elements (SignedError)
  std::vector<int64_t> head_widths;  // one of each kind of kernel
  bool long_sentences = false;       // has kernels whose tiles want them
  // Whether turned queries and keys are rounded as they are stored; null: never.
  bool (*rounds_turned)(const AttentionProblem& problem) = nullptr;
};

// Inputs as the backend stores them.
AttentionTensors MakeTensors(const AttentionBackend& backend, const AttentionProblem& problem);
AttentionReferenceProblem ReferenceProblem(const AttentionProblem& problem, const AttentionTensors& tensors);

class AttentionConformance : public ::testing::TestWithParam<AttentionBackend> {
 protected:
  AttentionTensors Tensors(const AttentionProblem& problem) const { return MakeTensors(GetParam(), problem); }
  void Run(const AttentionProblem& problem, AttentionTensors& tensors, int variation = 0) const {
    GetParam().run(problem, tensors, variation);
  }
};

}  // namespace hadal::testing
