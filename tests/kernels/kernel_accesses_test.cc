// What the kernels ask of memory is what their table says: a bank conflict, or an access that lost its neighbours,
// shows here.
#include "tests/kernels/kernel_accesses.h"

#include <fstream>
#include <sstream>

#include "gtest/gtest.h"

namespace hadal::testing {
namespace {

class KernelAccessesTest : public ::testing::Test {
 protected:
  static const std::vector<KernelAccesses>& Counted() {
    static const auto& counted = *new std::vector<KernelAccesses>(CountKernelAccesses());
    return counted;
  }
};

// Of one kernel's launch beside the same without the second stream: d is read once and written once forward, its
// gradient is read once backward.
TEST_F(KernelAccessesTest, ASecondStreamJoinsTheOnePassOfTheResidualConnection) {
  constexpr int64_t kSectors = 64 * 512 * 4 / 32;  // of a stream
  int compared = 0;
  for (const KernelAccesses& with : Counted()) {
    const bool forward = with.kernel.starts_with("ResidualNormForward");
    if (with.shape != kSecondStreamShape || !with.kernel.starts_with("ResidualNorm")) continue;
    for (const KernelAccesses& without : Counted()) {
      if (without.kernel != with.kernel || without.shape != "64 x 512") continue;
      EXPECT_EQ(with.counts.loads.least - without.counts.loads.least, kSectors) << with.kernel;
      EXPECT_EQ(with.counts.stores.least - without.counts.stores.least, forward ? kSectors : 0) << with.kernel;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 6);
}

TEST_F(KernelAccessesTest, TheCommittedTableIsCurrent) {
  std::ifstream file(HADAL_ACCESS_TABLE);
  std::stringstream committed;
  committed << file.rdbuf();
  EXPECT_EQ(committed.str(), AccessTable(Counted()))
      << "where the new counts are meant: kernel_accesses > kernels/cuda/accesses.md";
}

}  // namespace
}  // namespace hadal::testing
