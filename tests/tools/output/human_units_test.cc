#include "tools/output/human_units.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace hadal {
namespace {

TEST(HumanUnits, Durations) {
  EXPECT_EQ(HumanDuration(0), "0.0s");
  EXPECT_EQ(HumanDuration(9.94), "9.9s");
  EXPECT_EQ(HumanDuration(9.96), "10s");
  EXPECT_EQ(HumanDuration(59.4), "59s");
  EXPECT_EQ(HumanDuration(59.6), "1m00s");
  EXPECT_EQ(HumanDuration(200), "3m20s");
  EXPECT_EQ(HumanDuration(2 * 3600 + 5 * 60 + 59), "2h05m");
  EXPECT_EQ(HumanDuration(3 * 86400 + 4 * 3600), "3d04h");
  EXPECT_EQ(HumanDuration(86399), "23h59m");
  EXPECT_EQ(HumanDuration(86400), "1d00h");
  EXPECT_EQ(HumanDuration(86400 + 23.5 * 3600), "1d23h");
  EXPECT_EQ(HumanDuration(1e10), "115740d17h");
  EXPECT_EQ(HumanDuration(1.1e10), "?");
  EXPECT_EQ(HumanDuration(-1), "?");
  EXPECT_EQ(HumanDuration(NAN), "?");
  EXPECT_EQ(HumanDuration(INFINITY), "?");
}

TEST(HumanUnits, Counts) {
  EXPECT_EQ(HumanCount(0), "0");
  EXPECT_EQ(HumanCount(999), "999");
  EXPECT_EQ(HumanCount(1000), "1,000");
  EXPECT_EQ(HumanCount(1234567), "1,234,567");
  EXPECT_EQ(HumanCount(-123456), "-123,456");
  EXPECT_EQ(HumanCount(-1234567), "-1,234,567");
}

TEST(HumanUnits, Rates) {
  EXPECT_EQ(HumanRate(0), "0");
  EXPECT_EQ(HumanRate(950.2), "950");
  EXPECT_EQ(HumanRate(999.7), "1.00k");
  EXPECT_EQ(HumanRate(6123), "6.12k");
  EXPECT_EQ(HumanRate(9996), "10.0k");
  EXPECT_EQ(HumanRate(12345), "12.3k");
  EXPECT_EQ(HumanRate(99960), "100k");
  EXPECT_EQ(HumanRate(1.234e6), "1.23M");
  EXPECT_EQ(HumanRate(NAN), "?");
  EXPECT_EQ(HumanRate(-1), "?");
}

TEST(HumanUnits, ValuesKeepTheirDigits) {
  EXPECT_EQ(HumanValue(4.32149, 4), "4.321");
  EXPECT_EQ(HumanValue(9.99951, 4), "10.00");
  EXPECT_EQ(HumanValue(75.2, 4), "75.20");
  EXPECT_EQ(HumanValue(0.00123, 3), "0.00123");
  EXPECT_EQ(HumanValue(12345.6, 4), "12346");
  EXPECT_EQ(HumanValue(4.9e-4, 3), "4.90e-04");
  EXPECT_EQ(HumanValue(1e9, 4), "1.00e+09");
  EXPECT_EQ(HumanValue(123456, 4), "123456");
  EXPECT_EQ(HumanValue(1234567, 4), "1.23e+06");
  EXPECT_EQ(HumanValue(9.9994, 4), "9.999");
  EXPECT_EQ(HumanValue(-1.5, 3), "-1.50");
  EXPECT_EQ(HumanValue(0.0, 3), "0");
  EXPECT_EQ(HumanValue(-0.0, 3), "0");
}

TEST(HumanUnits, ValuesThatAreNotFiniteAreSaidInWords) {
  EXPECT_EQ(HumanValue(std::numeric_limits<double>::quiet_NaN(), 4), "not a number");
  EXPECT_EQ(HumanValue(-INFINITY, 4), "infinite");
}

}  // namespace
}  // namespace hadal
