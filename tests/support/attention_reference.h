// Attention and its gradient in double precision by the definition in kernels/attention.h, one (query, key) pair at a
// time.
#pragma once

#include <vector>

#include "kernels/attention_reach.h"
#include "runtime/random.h"

namespace hadal::testing {

struct AttentionReferenceProblem {
  std::vector<int32_t> query_offsets, key_offsets;  // [sentences + 1]
  int32_t heads = 1;
  int64_t head_width = 1;
  bool causal = false;
  Dropout dropout;
  std::vector<double> q, k, v;  // dense [rows, heads · head_width]; k and v [rows, heads / group · head_width]
  int32_t group = 1;
  int64_t half = 0;                     // rotary positions: pairs of a head's columns that turn; theta 10000
  int32_t reach = kWholeSentence;       // of a window
  float (*turned_as)(float) = nullptr;  // how turned queries and keys are rounded; null: they are not
};

struct AttentionReferenceForward {
  std::vector<double> output;       // [query rows, heads · head_width]
  std::vector<double> log_sum_exp;  // [query rows, heads]
};
AttentionReferenceForward AttentionReference(const AttentionReferenceProblem& problem);

struct AttentionReferenceBackward {
  std::vector<double> d_q, d_k, d_v;
};
AttentionReferenceBackward AttentionBackwardReference(const AttentionReferenceProblem& problem,
                                                      const std::vector<double>& d_output);

}  // namespace hadal::testing
