// Reproducible test inputs, and the comparison of floats with a double-precision reference.
#pragma once

#include <vector>

#include "gtest/gtest.h"
#include "runtime/tensor.h"

namespace hadal::testing {

// `count` standard normal values times `scale`, a function of `seed` alone.
std::vector<float> NormalValues(int64_t count, uint32_t seed, float scale = 1.0f);

// A matrix with its own storage.
struct OwnedMatrix {
  OwnedMatrix(int64_t rows, int64_t columns, float fill = 0.0f)
      : values(rows * columns, fill), rows(rows), columns(columns) {}
  OwnedMatrix(int64_t rows, int64_t columns, uint32_t seed, float scale)
      : values(NormalValues(rows * columns, seed, scale)), rows(rows), columns(columns) {}
  Matrix view() { return {values.data(), rows, columns}; }
  ConstMatrix view() const { return {values.data(), rows, columns}; }

  std::vector<float> values;
  int64_t rows, columns;
};

// The most that rounding a float to BFloat16 costs, in units of 2^-24 of the value: half of the last of its 8 bits.
inline constexpr double kBFloat16Roundoff = 0x1p16;

// Passes if each |actual − expected| ≤ 2^-24 · (multiple · (|expected| + magnitude) + roundoff · |expected|): tolerance
// is a multiple of the fp32 unit roundoff, scaled with the size of the terms that were summed (`magnitude`), as
// Highway's tests do; `roundoff` is for a result that is computed in fp32 and stored once in a narrower type. With
// kBFloat16Roundoff the relative L2 error is at most 2^-8, and one element that was truncated by more than that fails.
::testing::AssertionResult NearReference(const std::vector<float>& actual, const std::vector<double>& expected,
                                         double magnitude, double multiple, double roundoff = 0);

// Passes if ‖actual − expected‖₂ ≤ allowed · (‖expected‖₂ + 2^-24 · √size).
::testing::AssertionResult NearInL2(const std::vector<float>& actual, const std::vector<double>& expected,
                                    double allowed);

// The mean error in the direction of the expected values, over many tensors. Rounding to nearest leaves it near 0;
// truncation to BFloat16 makes it about -2.7e-3.
class SignedError {
 public:
  // Each tensor's errors count relative to its mean absolute value. REQUIRES: equal sizes.
  void Add(const std::vector<float>& actual, const std::vector<double>& expected);
  double Mean() const { return elements_ == 0 ? 0 : sum_ / elements_; }

 private:
  double sum_ = 0, elements_ = 0;
};

// Passes if both have the same bits.
::testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace hadal::testing
