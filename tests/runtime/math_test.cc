#include "runtime/math.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/crc32c.h"

namespace hadal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The distance of `value` from `exact` in units in the last place of `value`.
double UlpError(double value, long double exact) {
  const double ulp = std::nextafter(std::abs(value), kInfinity) - std::abs(value);
  return static_cast<double>(std::abs(value - exact) / ulp);
}

// 20,000 numbers between -1 and 1, denser at 0; the same on every machine.
std::vector<double> Numbers() {
  std::vector<double> numbers;
  uint64_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double uniform = static_cast<double>(state >> 11) * 0x1p-52 - 1;
    numbers.push_back(i % 2 == 0 ? uniform : uniform * uniform * uniform);
  }
  return numbers;
}

TEST(MathTest, RoundsAsTheExactResultNearlyAlways) {
  double exp = 0, log = 0, pow = 0, sin = 0, cos = 0;
  for (const double x : Numbers()) {  // std::max keeps a NaN that comes first
    const double power = 700 * x, positive = 1 + x, base = 1000 * positive, exponent = 80 * x, angle = 30000 * x;
    exp = std::max(UlpError(Exp(power), std::exp(static_cast<long double>(power))), exp);
    log = std::max(UlpError(Log(positive), std::log(static_cast<long double>(positive))), log);
    pow = std::max(UlpError(Pow(base, exponent), std::pow(static_cast<long double>(base), exponent)), pow);
    sin = std::max(UlpError(Sin(angle), std::sin(static_cast<long double>(angle))), sin);
    cos = std::max(UlpError(Cos(angle), std::cos(static_cast<long double>(angle))), cos);
  }
  EXPECT_LT(exp, 0.51);
  EXPECT_LT(log, 0.51);
  EXPECT_LT(pow, 0.8);
  EXPECT_LT(sin, 0.51);
  EXPECT_LT(cos, 0.51);
}

// Of GCC 12 on x86-64. Another compiler, option or CPU must give the same.
TEST(MathTest, TheBitsAreTheseOnEveryMachine) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "long double has other bits here than on x86-64";
#endif
  std::vector<double> results;
  for (const double x : Numbers()) {
    results.insert(results.end(), {Exp(700 * x), Log(1 + x), Pow(1 + x, 3 * x), Sin(9 * x), Cos(1e6 * x)});
  }
  EXPECT_EQ(Crc32c(results.data(), results.size() * sizeof(double)), 1164499990u);
}

TEST(MathTest, Limits) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(-kInfinity), 0);
  EXPECT_EQ(Exp(710), kInfinity);
  EXPECT_EQ(Exp(-745), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(Log(1), 0);
  EXPECT_EQ(Log(0), -kInfinity);
  EXPECT_EQ(Log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Log(-1)));
  EXPECT_EQ(Pow(16, -0.25), 0.5);
  EXPECT_EQ(Pow(0, 0), 1);
  EXPECT_EQ(Pow(0, 2), 0);
  EXPECT_EQ(Pow(0, -1), kInfinity);
  EXPECT_EQ(Pow(kInfinity, -1), 0);
  EXPECT_EQ(Sin(0), 0);
  EXPECT_EQ(Cos(0), 1);
  for (const double result : {Exp(nan), Log(nan), Pow(nan, 1), Pow(2, nan), Sin(nan), Cos(kInfinity)}) {
    EXPECT_TRUE(std::isnan(result));
  }
}

}  // namespace
}  // namespace hadal
