#include "tools/doctor/rank_comparison.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/check.h"
#include "tools/median.h"

namespace hadal {
namespace {

constexpr double kSlow = 0.5, kSuspect = 0.75;

}  // namespace

RankComparison::RankComparison(const std::vector<DoctorFacts>& ranks, const std::vector<RankMeasurements>& measured)
    : ranks_(ranks), measured_(measured) {
  HADAL_CHECK_EQ(ranks.size(), measured.size());
}

void RankComparison::Majority(Severity severity, const std::string& what,
                              const std::function<std::string(const DoctorFacts&)>& value, const OfKind& of_kind,
                              const std::string& remedy) {
  std::map<std::string, std::vector<int>> by_value;
  for (const DoctorFacts& facts : ranks_) {
    if (!of_kind || of_kind(facts.rank)) by_value[value(facts)].push_back(facts.rank);
  }
  const auto most = std::max_element(by_value.begin(), by_value.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  for (const auto& [found, ranks] : by_value) {
    if (found == most->first) continue;
    Add(severity, ranks, absl::StrCat("its ", what, " is ", found, "; most ranks have ", most->first, ". ", remedy));
  }
}

void RankComparison::Slow(const std::string& what, const std::string& unit, double scale,
                          const std::function<double(const RankMeasurements&)>& value, const OfKind& of_kind,
                          const std::string& remedy, bool shared) {
  std::vector<double> values;
  std::map<std::string, double> fastest;  // of a host
  const auto compared = [&](size_t rank) { return !of_kind || of_kind(static_cast<int>(rank)); };
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (!compared(r)) continue;
    values.push_back(value(measured_[r]));
    double& best = fastest[ranks_[r].host];
    best = std::max(best, values.back());
  }
  const double median = values.empty() ? 0 : Median(values);
  for (size_t r = 0; r < ranks_.size() && values.size() > 1; ++r) {
    if (!compared(r) || value(measured_[r]) >= kSuspect * median) continue;
    const double judged = shared ? fastest[ranks_[r].host] : value(measured_[r]);
    findings_.push_back({.severity = judged < kSlow * median ? Severity::kBad : Severity::kWarning,
                         .ranks = {static_cast<int>(r)},
                         .text = absl::StrFormat("%s: %.2f %s, the median is %.2f %s. %s", what,
                                                 scale * value(measured_[r]), unit, scale * median, unit, remedy),
                         .speed = true});
  }
}

std::vector<Finding> RankComparison::Take() {
  std::stable_sort(findings_.begin(), findings_.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return std::exchange(findings_, {});
}

}  // namespace hadal
