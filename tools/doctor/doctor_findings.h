// What is wrong with a set of ranks, by comparing them with each other: who differs, who is slow, who is cramped.
//
// Judged against the majority (binary, instruction set, GPU) or the median (speeds, links), so that no table of
// machines is needed; links within a host and between hosts are two kinds, and so are GPUs of two models.
// Threads: pure.
#pragma once

#include <vector>

#include "tools/doctor/rank_comparison.h"

namespace hadal {

// Bad ones first. REQUIRES: as many measurements as ranks, in rank order, placed on hosts (PlaceOnHosts).
std::vector<Finding> FindFaults(const std::vector<RankFacts>& ranks, const std::vector<RankMeasurements>& measured);

}  // namespace hadal
