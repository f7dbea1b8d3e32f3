#include "kernels/cpu/sinkhorn.h"

#include <algorithm>
#include <cmath>

#include "kernels/hyper_connection.h"

namespace hadal::cpu {
namespace {

constexpr int64_t kMostElements = kMostStreams * kMostStreams;
constexpr int64_t kSteps = 2 * kSinkhornRounds;
constexpr float kLeastSum = 1e-30f;

// A step divides groups of n elements: columns in even steps, rows in odd ones.
struct Groups {
  int64_t between_groups, between_elements;
};
Groups GroupsOf(int64_t step, int64_t n) { return step % 2 == 0 ? Groups{1, n} : Groups{n, 1}; }

// e^(logits − the column's largest), which the first step makes the same as e^logits.
void Exponentials(int64_t n, const float* logits, float* m) {
  for (int64_t j = 0; j < n; ++j) {
    float largest = logits[j];
    for (int64_t i = 1; i < n; ++i) largest = std::max(largest, logits[i * n + j]);
    for (int64_t i = 0; i < n; ++i) m[i * n + j] = std::exp(logits[i * n + j] - largest);
  }
}

// result = m with each group divided by its sum; factors [n] (=): what they are multiplied by.
void Divide(int64_t n, const Groups& groups, const float* m, float* result, float* factors) {
  for (int64_t g = 0; g < n; ++g) {
    const float* from = m + g * groups.between_groups;
    float* to = result + g * groups.between_groups;
    float sum = 0;
    for (int64_t k = 0; k < n; ++k) sum += from[k * groups.between_elements];
    factors[g] = sum < kLeastSum ? 0.0f : 1.0f / sum;
    for (int64_t k = 0; k < n; ++k) to[k * groups.between_elements] = from[k * groups.between_elements] * factors[g];
  }
}

}  // namespace

void SinkhornForward(int64_t n, const float* logits, float* result) {
  float factors[kMostStreams];
  Exponentials(n, logits, result);
  for (int64_t step = 0; step < kSteps; ++step) Divide(n, GroupsOf(step, n), result, result, factors);
}

void SinkhornBackward(int64_t n, const float* logits, const float* d_result, float* d_logits) {
  float exponentials[kMostElements], after[kSteps][kMostElements], factors[kSteps][kMostStreams];
  Exponentials(n, logits, exponentials);
  for (int64_t step = 0; step < kSteps; ++step) {
    Divide(n, GroupsOf(step, n), step == 0 ? exponentials : after[step - 1], after[step], factors[step]);
  }
  std::copy(d_result, d_result + n * n, d_logits);
  for (int64_t step = kSteps - 1; step >= 0; --step) {
    const Groups groups = GroupsOf(step, n);
    for (int64_t g = 0; g < n; ++g) {
      float* d = d_logits + g * groups.between_groups;
      const float* y = after[step] + g * groups.between_groups;
      float dot = 0;
      for (int64_t k = 0; k < n; ++k) dot += d[k * groups.between_elements] * y[k * groups.between_elements];
      for (int64_t k = 0; k < n; ++k) {
        float& gradient = d[k * groups.between_elements];
        gradient = (gradient - dot) * factors[step][g];
      }
    }
  }
  for (int64_t k = 0; k < n * n; ++k) d_logits[k] *= exponentials[k];
}

}  // namespace hadal::cpu
