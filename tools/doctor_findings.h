// What is wrong with a set of ranks, by comparing them with each other: who differs, who is slow, who is cramped.
//
// Judged against the majority (binary, instruction set) or the median (speeds, links), so that no table of machines is needed; a
// link or a rank is slow below half, and suspect below three quarters, of the median of its kind (links within a host and between
// hosts are two kinds).
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor_facts.h"
#include "tools/doctor_probe.h"

namespace hadal {

enum class Severity { kWarning, kBad };

struct Finding {
  Severity severity = Severity::kWarning;
  std::vector<int> ranks;  // whom it concerns, ascending
  std::string text;        // what, and what to try
};

// Bad ones first. REQUIRES: as many measurements as ranks, in rank order, placed on hosts (PlaceOnHosts).
std::vector<Finding> FindFaults(const std::vector<RankFacts>& ranks, const std::vector<RankMeasurements>& measured);

// "rank 3 (host n2)" or "ranks 0, 1 (host n1)".
std::string DescribeRanks(const std::vector<int>& which, const std::vector<RankFacts>& ranks);

}  // namespace hadal
