#include "kernels/add.h"

#include "gtest/gtest.h"
#include "kernels/convert.h"
#include "kernels/scatter_rows.h"
#include "kernels/top_candidates.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/random_inputs.h"
#include "tests/support/strided_matrix.h"
#include "tests/support/test_device.h"
#include "tests/support/top_candidates_reference.h"

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

constexpr int64_t kRows = 37, kColumns = 11;

std::vector<float> Rounded(std::vector<float> values) {
  for (float& value : values) value = Widened(RoundedToBFloat16(value));
  return values;
}

// Fp32 to bf16 and back, on the CPU and on a device.
TEST(ConvertTest, TheDevicesAgree) {
  const std::unique_ptr<Device> device = MakeTestDevice(/*seed=*/1);
  const std::vector<float> values = NormalValues(kRows * kColumns, 1);
  for (const Stream& stream : {Stream::Cpu(1), Stream::Cpu(3), Stream::On(*device, 1)}) {
    ArenaLayout layout;
    const ArenaSlice wide_slice = layout.Reserve<float>("wide", kRows * kColumns);
    const ArenaSlice narrow_slice = layout.Reserve<BFloat16>("narrow", kRows * kColumns);
    const Arena arena = *Arena::Allocate(layout, stream.device());
    const Matrix wide(arena.Get<float>(wide_slice), kRows, kColumns);
    const AnyMatrix narrow(arena.Get<BFloat16>(narrow_slice), kRows, kColumns, Storage::kBFloat16);
    stream.FromHost(wide.data, values.data(), kRows * kColumns * int64_t{sizeof(float)});
    Convert(stream, {.from = wide, .to = narrow});
    EXPECT_EQ(HostValues(stream, narrow), Rounded(values));
    stream.Clear(wide.data, kRows * kColumns * int64_t{sizeof(float)});
    Convert(stream, {.from = narrow, .to = wide});
    EXPECT_EQ(HostValues(stream, wide), Rounded(values));
  }
}

// Both sides are columns of something wider, as keys and values are of one cache row.
TEST(ScatterRows, EveryRowGoesToItsPlaceAndNothingElseChanges) {
  for (const int32_t width : {1, 3, 16, 33}) {
    for (const auto& [count, rows] : {std::pair(1, 1), {4, 4}, {2, 7}, {9, 40}}) {
      const std::vector<float> x = NormalValues(count * width, 1), before = NormalValues(rows * width, 2);
      std::vector<int32_t> places;  // different ones, in no order
      for (int32_t i = 0; i < count; ++i) places.push_back((3 * i + rows - 1) % rows);
      std::vector<float> expected = before;
      for (int32_t i = 0; i < count; ++i) {
        for (int32_t c = 0; c < width; ++c) expected[places[i] * width + c] = x[i * width + c];
      }
      StridedMatrix from(x, count, width), to(before, rows, width, /*offset=*/2, /*padding=*/5);
      ScatterRows(Stream::Cpu(1), {.x = from.view(), .index = {places.data(), count}, .y = to.view()});
      EXPECT_EQ(to.dense(), expected) << count << " of " << rows << " rows of " << width;
      EXPECT_TRUE(to.guards_intact());
    }
  }
}

TEST(ScatterRows, NoRowsChangeNothing) {
  OwnedMatrix to(2, 3, 7.0f);
  ScatterRows(Stream::Cpu(1), {.x = ConstMatrix(), .index = ConstTokens(), .y = to.view()});
  EXPECT_EQ(to.values, std::vector<float>(6, 7.0f));
}

TEST(ScatterRowsDeathTest, PlacesBeyondTheRowsAndOtherWidthsAreRefused) {
  const OwnedMatrix from(2, 3, 1.0f);
  OwnedMatrix to(4, 3), narrow(4, 2);
  const std::vector<int32_t> good = {0, 3}, above = {0, 4}, below = {-1, 2};
  EXPECT_DEATH(ScatterRows(Stream::Cpu(1), {.x = from.view(), .index = {above.data(), 2}, .y = to.view()}), "4 vs. 4");
  EXPECT_DEATH(ScatterRows(Stream::Cpu(1), {.x = from.view(), .index = {below.data(), 2}, .y = to.view()}), "-1 vs. 0");
  EXPECT_DEATH(ScatterRows(Stream::Cpu(1), {.x = from.view(), .index = {good.data(), 1}, .y = to.view()}), "1 vs. 2");
  EXPECT_DEATH(ScatterRows(Stream::Cpu(1), {.x = from.view(), .index = {good.data(), 2}, .y = narrow.view()}),
               "2 vs. 3");
  const OwnedMatrix angles(2, 2, 1.0f);
  const std::vector<int32_t> positions = {0, 2};
  EXPECT_DEATH(ScatterRows(Stream::Cpu(1), {.x = from.view(),
                                            .index = {good.data(), 2},
                                            .y = to.view(),
                                            .rotary = {angles.view()},
                                            .turned_columns = 2,
                                            .head_width = 2,
                                            .positions = {positions.data(), 2}}),
               "2 vs. 2");
}

TEST(TopCandidatesTest, EqualsSortingOnEveryInstructionSet) {
  ForEachInstructionSet([] {
    for (const int threads : {1, 3}) {
      ExpectTopCandidates([threads](const std::vector<float>& logits, int64_t rows, int64_t count, int32_t also) {
        TopCandidatesResults found = {std::vector<int32_t>(rows * count, 12345), std::vector<int32_t>(rows, 12345),
                                      std::vector<float>(rows * count), std::vector<float>(rows)};
        TopCandidates(Stream::Cpu(threads), {.logits = {logits.data(), rows, std::ssize(logits) / rows},
                                             .also = also,
                                             .tokens = {found.tokens.data(), rows, count},
                                             .values = {found.values.data(), rows, count},
                                             .also_values = {found.also.data(), rows},
                                             .best = {found.best.data(), rows}});
        return found;
      });
    }
  });
}

}  // namespace
}  // namespace hadal::testing
