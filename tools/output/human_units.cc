#include "tools/output/human_units.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hadal {

std::string HumanDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e10) return "?";
  if (seconds < 9.95) return absl::StrFormat("%.1fs", seconds);
  const int64_t total = std::llround(seconds);
  const int64_t minutes = total / 60;
  const int64_t hours = minutes / 60;
  if (minutes == 0) return absl::StrFormat("%ds", total);
  if (hours == 0) return absl::StrFormat("%dm%02ds", minutes, total % 60);
  if (hours < 24) return absl::StrFormat("%dh%02dm", hours, minutes % 60);
  return absl::StrFormat("%dd%02dh", hours / 24, hours % 24);
}

std::string HumanCount(int64_t count) {
  std::string digits = absl::StrCat(count);
  const int first = count < 0 ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3) digits.insert(at, 1, ',');
  return digits;
}

std::string HumanRate(double per_second) {
  if (!std::isfinite(per_second) || per_second < 0) return "?";
  const char* unit = "";
  for (const char* larger : {"k", "M", "G", "T"}) {
    if (per_second < 999.5) break;
    per_second /= 1000;
    unit = larger;
  }
  const int decimals = *unit == '\0' || per_second >= 99.95 ? 0 : per_second >= 9.995 ? 1 : 2;
  return absl::StrFormat("%.*f%s", decimals, per_second, unit);
}

std::string HumanValue(double value, int digits) {
  if (std::isnan(value)) return "not a number";
  if (std::isinf(value)) return "infinite";
  if (value == 0) return "0";
  // The exponent after rounding, so that 9.9996 with four digits becomes 10.00 and not 10.000.
  const double magnitude = std::fabs(value);
  int exponent = static_cast<int>(std::floor(std::log10(magnitude)));
  if (magnitude >= std::pow(10.0, exponent + 1) - 0.5 * std::pow(10.0, exponent + 1 - digits)) ++exponent;
  if (exponent < -3 || exponent >= 6) return absl::StrFormat("%.*e", std::max(0, std::min(digits, 3) - 1), value);
  return absl::StrFormat("%.*f", std::max(0, digits - 1 - exponent), value);
}

}  // namespace hadal
