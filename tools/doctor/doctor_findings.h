// Finds problems in a set of ranks by comparing them with each other: differing settings, low speed, scarce resources.
//
// Ranks are compared with the majority (binary, instruction set, GPU) or the median (speeds, links), so no table of
// machines is needed. Links within a host and between hosts are compared separately, and so are GPUs of different
// models.
// Threads: pure.
#pragma once

#include <vector>

#include "tools/doctor/rank_comparison.h"

namespace hadal {

// Returns the findings, bad ones first. REQUIRES: one measurement per rank, in rank order; PlaceOnHosts was called.
std::vector<Finding> FindFaults(const std::vector<DoctorFacts>& ranks, const std::vector<RankMeasurements>& measured);

}  // namespace hadal
