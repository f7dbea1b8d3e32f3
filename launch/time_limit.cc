#include "launch/time_limit.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr char kJobStart[] = "HADAL_JOB_START";     // Unix seconds
constexpr char kSlurmEnd[] = "SLURM_JOB_END_TIME";  // Unix seconds; the start as well
constexpr char kSlurmStart[] = "SLURM_JOB_START_TIME";

std::optional<absl::Time> TimeFromEnvironment(const char* name) {
  const char* const text = std::getenv(name);
  int64_t seconds = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &seconds) || seconds <= 0) return std::nullopt;
  return absl::FromUnixSeconds(seconds);
}

}  // namespace

absl::StatusOr<TimeLimit> TimeLimit::Make(const std::string& stop_after) {
  const absl::Time now = absl::Now();
  absl::Time at = absl::InfiniteFuture();
  if (!stop_after.empty()) {
    absl::Duration duration;
    if (!absl::ParseDuration(stop_after, &duration) || duration <= absl::ZeroDuration()) {
      return InvalidArgumentError("--stop-after \"", stop_after,
                                  "\" is no positive duration; write for example 3h55m or 90s");
    }
    at = TimeFromEnvironment(kJobStart).value_or(now) + duration;
  }
  if (const std::optional<absl::Time> end = TimeFromEnvironment(kSlurmEnd); end > now) {
    const absl::Duration length = *end - TimeFromEnvironment(kSlurmStart).value_or(now);
    at = std::min(at, *end - std::min(kLongestMargin, length / 10));
  }
  return TimeLimit(at, now);
}

void MarkJobStart() {
  if (TimeFromEnvironment(kJobStart).has_value()) return;
  setenv(kJobStart, absl::StrCat(absl::ToUnixSeconds(absl::Now())).c_str(), /*overwrite=*/1);
}

}  // namespace hadal
