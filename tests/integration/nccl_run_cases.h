// Runs whose ranks exchange by NCCL, each of which must have the bits of the same run through the host: one list for
// the emulated NCCL (nccl_run_test.cc) and for NCCL itself (tests/gpu/nccl_run_test.cc).
#pragma once

#include <ostream>

#include "tests/integration/pipeline_run.h"

namespace hadal::testing {

inline constexpr int kNcclRunVocabulary = 47;

struct NcclRunCase {
  std::string name;
  RunSpec spec;  // without devices
  friend void PrintTo(const NcclRunCase& run, std::ostream* out) { *out << run.name; }
};

// A small run, for changes to it.
RunSpec SmallNcclRun(ResidualMethod method);
// For 2, 4 or 8 ranks; with 8, every rank exchanges with every other.
std::vector<NcclRunCase> NcclRunCases(int ranks);

}  // namespace hadal::testing
