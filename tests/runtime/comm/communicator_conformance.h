// What every transport must do: lists of cases, each a function that all ranks run at once, for any number of ranks
// from 1. A transport's test runs each case with fresh communicators, one rank a thread or process, and fails when any
// rank's expectations fail. A new transport adds one such test file and no cases.
#pragma once

#include <iosfwd>

#include "gtest/gtest.h"
#include "runtime/comm/communicator.h"
#include "runtime/stream.h"

namespace hadal::testing {

struct ConformanceCase {
  const char* name;
  // Called by every rank with its own communicator. GoogleTest's EXPECT and ASSERT may be used: they are thread-safe.
  // `memory`: whose memory the communicator moves.
  void (*run)(Communicator& communicator, const Stream& memory);
};

std::span<const ConformanceCase> PointToPointCases();  // communicator_conformance.cc
std::span<const ConformanceCase> CollectivesCases();   // collectives_conformance.cc; in the host's memory

// How GoogleTest prints a case.
void PrintTo(const ConformanceCase& conformance_case, std::ostream* out);
// Names a parameterised test after its case.
std::string ConformanceCaseName(const ::testing::TestParamInfo<ConformanceCase>& info);

}  // namespace hadal::testing
