#include "kernels/cuda_host/cuda_device.h"

#include <vector>

#include "gmock/gmock.h"

namespace hadal::cuda {
namespace {

using ::testing::ElementsAre;

// The host's GPUs that its ranks take. `lists`: of each local rank, what CUDA_VISIBLE_DEVICES says, by the host's
// numbers.
std::vector<int> Taken(const std::vector<std::vector<int>>& lists) {
  std::vector<int> taken;
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    const std::vector<int>& list = lists[rank];
    taken.push_back(list[ChooseVisibleDevice(static_cast<int>(rank), static_cast<int>(list.size()))]);
  }
  return taken;
}

TEST(VisibleDevice, RanksTakeTheOneOfTheirNumberAndTakeTurns) {
  EXPECT_THAT(Taken(std::vector(4, std::vector{0, 1, 2, 3})), ElementsAre(0, 1, 2, 3)) << "the whole host";
  EXPECT_THAT(Taken(std::vector(2, std::vector{2, 3})), ElementsAre(2, 3)) << "a list hides";
  EXPECT_THAT(Taken(std::vector(3, std::vector{7, 5, 3})), ElementsAre(7, 5, 3)) << "and reorders";
  EXPECT_THAT(Taken({{0}, {1}, {2}, {3}}), ElementsAre(0, 1, 2, 3)) << "one GPU a task";
  EXPECT_THAT(Taken({{3}, {1}}), ElementsAre(3, 1));
  EXPECT_THAT(Taken({{0, 1}, {2, 3}, {4, 5}}), ElementsAre(0, 3, 4)) << "several GPUs a task";
  EXPECT_THAT(Taken(std::vector(5, std::vector{0, 1})), ElementsAre(0, 1, 0, 1, 0)) << "more ranks than GPUs";
}

}  // namespace
}  // namespace hadal::cuda
