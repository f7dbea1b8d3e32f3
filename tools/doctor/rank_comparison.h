// Ranks compared with each other: who differs from most, who is slow beside the median. What `hadal doctor` finds is
// collected here.
//
// A rank is slow below half, and suspect below three quarters, of the median.
// Threads: one.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tools/doctor/doctor_facts.h"
#include "tools/doctor/doctor_probe.h"

namespace hadal {

enum class Severity { kNote, kWarning, kBad };

struct Finding {
  Severity severity = Severity::kWarning;
  std::vector<int> ranks;  // whom it concerns, ascending
  std::string text;        // what, and what to try
};

class RankComparison {
 public:
  using OfKind = std::function<bool(int rank)>;  // which ranks are compared; null: all

  // REQUIRES: as many measurements as ranks, in rank order; both outlive this.
  RankComparison(const std::vector<RankFacts>& ranks, const std::vector<RankMeasurements>& measured);

  const std::vector<RankFacts>& ranks() const { return ranks_; }
  const std::vector<RankMeasurements>& measured() const { return measured_; }

  void Add(Severity severity, std::vector<int> ranks, std::string text) {
    findings_.push_back({severity, std::move(ranks), std::move(text)});
  }
  // Those whose value is not the most frequent one.
  void Majority(Severity severity, const std::string& what, const std::function<std::string(const RankFacts&)>& value,
                const OfKind& of_kind, const std::string& remedy);
  // Those far below the median.
  void Slow(const std::string& what, const std::string& unit, double scale,
            const std::function<double(const RankMeasurements&)>& value, const OfKind& of_kind,
            const std::string& remedy);

  // Bad ones first, otherwise as they were added. Leaves none.
  std::vector<Finding> Take();

 private:
  const std::vector<RankFacts>& ranks_;
  const std::vector<RankMeasurements>& measured_;
  std::vector<Finding> findings_;
};

// "rank 3 (host n2)", "ranks 0, 1 (host n1)"; "all 64 ranks" where there are more than two.
std::string DescribeRanks(const std::vector<int>& which, const std::vector<RankFacts>& ranks);

}  // namespace hadal
