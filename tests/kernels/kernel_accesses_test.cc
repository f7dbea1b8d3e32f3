// What the kernels ask of memory is what their table says: a bank conflict, or an access that lost its neighbours,
// shows here.
#include "tests/kernels/kernel_accesses.h"

#include <fstream>
#include <sstream>

#include "gtest/gtest.h"

namespace hadal::testing {
namespace {

TEST(KernelAccessesTest, TheCommittedTableIsCurrent) {
  std::ifstream file(HADAL_ACCESS_TABLE);
  std::stringstream committed;
  committed << file.rdbuf();
  EXPECT_EQ(committed.str(), AccessTable(CountKernelAccesses()))
      << "where the new counts are meant: kernel_accesses > kernels/cuda/accesses.md";
}

}  // namespace
}  // namespace hadal::testing
