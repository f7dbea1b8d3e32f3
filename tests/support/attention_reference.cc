#include "tests/support/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/attention_dropout.h"

namespace hadal::testing {
namespace {

// One query of one head: its row, its keys' rows, and its distribution over them.
struct QueryOfHead {
  int64_t row, column;                // of q; the head's first column
  int64_t first_key;                  // row of k, of the first key it sees
  std::vector<double> probabilities;  // of the keys it sees
  std::vector<double> factors;        // dropout
  double log_sum_exp;
};

double Dot(const std::vector<double>& a, int64_t a_at, const std::vector<double>& b, int64_t b_at, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[a_at + i] * b[b_at + i];
  return sum;
}

// Turns rows [rows, columns] of sentences to their positions, or back.
void Turn(const AttentionReferenceProblem& p, const std::vector<int32_t>& offsets, int64_t columns, double sign,
          std::vector<double>& x) {
  for (size_t n = 0; n + 1 < offsets.size(); ++n) {
    for (int64_t row = offsets[n]; row < offsets[n + 1]; ++row) {
      for (int64_t at = row * columns; at < (row + 1) * columns; at += p.head_width) {
        for (int64_t c = 0; c < p.half; ++c) {
          const double angle = (row - offsets[n]) * std::pow(10000.0, -static_cast<double>(c) / p.half);
          const double low = x[at + c], high = x[at + p.half + c], sine = sign * std::sin(angle);
          x[at + c] = low * std::cos(angle) - high * sine;
          x[at + p.half + c] = high * std::cos(angle) + low * sine;
        }
      }
    }
  }
}

AttentionReferenceProblem Turned(AttentionReferenceProblem p) {
  const int64_t columns = p.heads * p.head_width;
  Turn(p, p.query_offsets, columns, 1, p.q);
  Turn(p, p.key_offsets, columns / p.group, 1, p.k);
  if (p.turned_as == nullptr) return p;
  for (double& x : p.q) x = p.turned_as(static_cast<float>(x));
  for (double& x : p.k) x = p.turned_as(static_cast<float>(x));
  return p;
}

// Where head `head` of row `row` of k and v begins.
int64_t KeyAt(const AttentionReferenceProblem& p, int64_t row, int32_t head) {
  return (row * (p.heads / p.group) + head / p.group) * p.head_width;
}

QueryOfHead Attend(const AttentionReferenceProblem& p, int64_t sentence, int64_t row, int32_t head) {
  const int64_t columns = p.heads * p.head_width;
  const int64_t all_keys = p.key_offsets[sentence + 1] - p.key_offsets[sentence];
  const int64_t position = row - p.query_offsets[sentence];
  const int64_t first = std::max<int64_t>(0, position - p.reach);
  const int64_t end = std::min(all_keys, position + 1 + (p.causal ? 0 : p.reach));
  QueryOfHead query = {row, head * p.head_width, p.key_offsets[sentence] + first, {}, {}, 0};
  double maximum = -std::numeric_limits<double>::infinity();
  for (int64_t j = first; j < end; ++j) {
    const double score =
        Dot(p.q, row * columns + query.column, p.k, KeyAt(p, p.key_offsets[sentence] + j, head), p.head_width) /
        std::sqrt(static_cast<double>(p.head_width));
    query.probabilities.push_back(score);
    query.factors.push_back(AttentionDropoutFactor(p.dropout, row, p.heads, head, j));
    maximum = std::max(maximum, score);
  }
  double sum = 0;
  for (double score : query.probabilities) sum += std::exp(score - maximum);
  query.log_sum_exp = maximum + std::log(sum);
  for (double& score : query.probabilities) score = std::exp(score - query.log_sum_exp);
  return query;
}

template <typename Body>
void ForQueries(const AttentionReferenceProblem& p, Body&& body) {
  for (size_t n = 0; n + 1 < p.query_offsets.size(); ++n) {
    for (int64_t row = p.query_offsets[n]; row < p.query_offsets[n + 1]; ++row) {
      for (int32_t head = 0; head < p.heads; ++head) body(Attend(p, n, row, head), head);
    }
  }
}

}  // namespace

AttentionReferenceForward AttentionReference(const AttentionReferenceProblem& problem) {
  const AttentionReferenceProblem p = Turned(problem);
  const int64_t columns = p.heads * p.head_width;
  AttentionReferenceForward result;
  result.output.resize(p.q.size());
  ForQueries(p, [&](const QueryOfHead& query, int32_t head) {
    for (size_t j = 0; j < query.probabilities.size(); ++j) {
      const double weight = query.probabilities[j] * query.factors[j];
      for (int64_t d = 0; d < p.head_width; ++d) {
        result.output[query.row * columns + query.column + d] += weight * p.v[KeyAt(p, query.first_key + j, head) + d];
      }
    }
    result.log_sum_exp.push_back(query.log_sum_exp);
  });
  return result;
}

AttentionReferenceBackward AttentionBackwardReference(const AttentionReferenceProblem& problem,
                                                      const std::vector<double>& d_output) {
  const AttentionReferenceProblem p = Turned(problem);
  const int64_t columns = p.heads * p.head_width;
  AttentionReferenceBackward result;
  result.d_q.resize(p.q.size());
  result.d_k.resize(p.k.size());
  result.d_v.resize(p.v.size());
  ForQueries(p, [&](const QueryOfHead& query, int32_t head) {
    const int64_t q_at = query.row * columns + query.column;
    const size_t keys = query.probabilities.size();
    std::vector<double> d_probability(keys);
    double delta = 0;
    for (size_t j = 0; j < keys; ++j) {
      const int64_t k_at = KeyAt(p, query.first_key + j, head);
      d_probability[j] = query.factors[j] * Dot(d_output, q_at, p.v, k_at, p.head_width);
      delta += query.probabilities[j] * d_probability[j];
      for (int64_t d = 0; d < p.head_width; ++d) {
        result.d_v[k_at + d] += query.probabilities[j] * query.factors[j] * d_output[q_at + d];
      }
    }
    for (size_t j = 0; j < keys; ++j) {
      const int64_t k_at = KeyAt(p, query.first_key + j, head);
      const double d_score =
          query.probabilities[j] * (d_probability[j] - delta) / std::sqrt(static_cast<double>(p.head_width));
      for (int64_t d = 0; d < p.head_width; ++d) {
        result.d_q[q_at + d] += d_score * p.k[k_at + d];
        result.d_k[k_at + d] += d_score * p.q[q_at + d];
      }
    }
  });
  Turn(p, p.query_offsets, columns, -1, result.d_q);
  Turn(p, p.key_offsets, columns / p.group, -1, result.d_k);
  return result;
}

}  // namespace hadal::testing
