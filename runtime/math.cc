#include "runtime/math.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "runtime/check.h"

namespace hadal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// log 2 and pi / 2, each as a sum. The first part has 32 significant bits: its product with an integer is exact.
constexpr long double kLog2High = 0x1.62e42feep-1L, kLog2Low = 0x1.a39ef35793c7673p-33L;
constexpr long double kHalfPiHigh = 0x1.921fb544p+0L, kHalfPiLow = 0x1.0b4611a62633145cp-34L;

struct Reciprocals {
  long double of[30] = {};  // of[k] = 1 / k
  constexpr Reciprocals() {
    for (int k = 1; k < 30; ++k) of[k] = 1.0L / k;
  }
};
constexpr Reciprocals kReciprocals;

int64_t Nearest(long double x) { return static_cast<int64_t>(x + (x < 0 ? -0.5L : 0.5L)); }

double LongExp(long double x) {
  if (x > 710) return kInfinity;
  if (x < -746) return 0;
  const int64_t n = Nearest(x / kLog2High);
  const long double r = (x - n * kLog2High) - n * kLog2Low;  // |r| ≤ log(2) / 2
  long double sum = 1;
  for (int k = 18; k >= 1; --k) sum = 1 + r * kReciprocals.of[k] * sum;
  return static_cast<double>(std::ldexp(sum, static_cast<int>(n)));
}

// 2·artanh((m − 1) / (m + 1)) + exponent·log 2 for the mantissa m in [sqrt(1/2), sqrt(2)). REQUIRES: 0 < x < infinity.
long double LongLog(double x) {
  int exponent;
  long double m = std::frexp(static_cast<long double>(x), &exponent);
  if (m < 0.70710678L) m *= 2, --exponent;
  const long double s = (m - 1) / (m + 1), square = s * s;
  long double sum = 0;
  for (int k = 14; k >= 1; --k) sum = square * (kReciprocals.of[2 * k + 1] + sum);
  return exponent * kLog2High + (2 * s + (2 * s * sum + exponent * kLog2Low));
}

// sin(x + quarter · pi/2)
double LongSin(double x, int64_t quarter) {
  if (!(std::abs(x) < kInfinity)) return kNaN;
  HADAL_CHECK(std::abs(x) < 0x1p31);
  const int64_t n = Nearest(x / kHalfPiHigh);
  const long double r = (x - n * kHalfPiHigh) - n * kHalfPiLow, square = r * r;  // |r| ≤ pi / 4
  const bool cosine = (n + quarter) % 2 != 0;
  long double sum = 1;
  for (int k = cosine ? 24 : 25; k >= 2; k -= 2) sum = 1 - square * kReciprocals.of[k] * kReciprocals.of[k - 1] * sum;
  if (!cosine) sum *= r;
  return static_cast<double>(((n + quarter) & 2) != 0 ? -sum : sum);
}

}  // namespace

double Exp(double x) { return x != x ? x : LongExp(x); }

double Log(double x) {
  if (!(x >= 0)) return kNaN;
  if (x == 0) return -kInfinity;
  return x == kInfinity ? x : static_cast<double>(LongLog(x));
}

double Pow(double base, double exponent) {
  HADAL_CHECK(!(base < 0));
  if (exponent == 0) return 1;
  if (base != base || exponent != exponent) return kNaN;
  if (base == 0 || base == kInfinity) return (base == 0) == (exponent < 0) ? kInfinity : 0;
  return LongExp(exponent * LongLog(base));
}

double Sin(double x) { return LongSin(x, 0); }
double Cos(double x) { return LongSin(x, 1); }

}  // namespace hadal
