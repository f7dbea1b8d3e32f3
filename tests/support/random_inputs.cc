#include "tests/support/random_inputs.h"

#include <cmath>
#include <cstring>

#include "runtime/random.h"

namespace hadal::testing {

std::vector<float> NormalValues(int64_t count, uint32_t seed, float scale) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = scale * static_cast<float>(NormalAt(/*seed=*/2026, RandomSite::kSampling, seed, i));
  }
  return values;
}

::testing::AssertionResult NearReference(const std::vector<float>& actual, const std::vector<double>& expected,
                                         double magnitude, double multiple, double roundoff) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure() << "sizes differ: " << actual.size() << " vs. " << expected.size();
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    const double allowed =
        0x1p-24 * (multiple * (std::abs(expected[i]) + magnitude) + roundoff * std::abs(expected[i]));
    if (!(std::abs(actual[i] - expected[i]) <= allowed)) {
      return ::testing::AssertionFailure() << "element " << i << ": " << actual[i] << ", reference " << expected[i]
                                           << ", allowed difference " << allowed;
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult NearInL2(const std::vector<float>& actual, const std::vector<double>& expected,
                                    double allowed) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure() << "sizes differ: " << actual.size() << " vs. " << expected.size();
  }
  double error = 0, norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  const double limit = allowed * (std::sqrt(norm) + 0x1p-24 * std::sqrt(expected.size()));
  if (std::sqrt(error) <= limit) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "relative error " << std::sqrt(error / norm) << " in L2, allowed " << allowed;
}

void SignedError::Add(const std::vector<float>& actual, const std::vector<double>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += expected[i] < 0 ? expected[i] - actual[i] : actual[i] - expected[i];
    size += std::abs(expected[i]);
  }
  if (size == 0) return;
  sum_ += error / size * static_cast<double>(expected.size());
  elements_ += static_cast<double>(expected.size());
}

::testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "sizes differ: " << a.size() << " vs. " << b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << "element " << i << " differs: " << a[i] << " vs. " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace hadal::testing
