// Formats numbers for readers: durations, counts, rates, and values that may not be finite.
// Threads: pure functions. None prints "nan", "inf" or "-0".
#pragma once

#include <cstdint>
#include <string>

namespace hadal {

inline constexpr double kGib = 1 << 30;  // bytes

// "0.4s" below ten seconds, then "42s", "3m20s", "2h05m", "3d04h". Not finite or negative: "?".
std::string HumanDuration(double seconds);

// "1,234,567".
std::string HumanCount(int64_t count);

// Three digits and a unit: "950", "6.12k", "12.3k", "1.23M". Not finite or negative: "?".
std::string HumanRate(double per_second);

// `digits` significant digits, without an exponent between 1e-3 and 1e6, with one otherwise ("4.9e-04"). NaN: "not a
// number"; infinity: "infinite".
std::string HumanValue(double value, int digits);

}  // namespace hadal
