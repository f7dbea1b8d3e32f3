#include "kernels/add.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

TEST(AddTest, AddsEveryElementOnceForEveryThreadCount) {
  for (const int64_t count : {0, 1, 4095, 20000}) {
    const std::vector<float> values = NormalValues(count, /*seed=*/1, 1.0f);
    const std::vector<float> before = NormalValues(count, /*seed=*/2, 1.0f);
    for (const int threads : {1, 3}) {
      std::vector<float> sum = before;
      Add(Stream::Cpu(threads), {.sum = {sum.data(), count}, .values = {values.data(), count}});
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(sum[i], before[i] + values[i]) << i << " of " << count;
    }
  }
}

}  // namespace
}  // namespace hadal::testing
