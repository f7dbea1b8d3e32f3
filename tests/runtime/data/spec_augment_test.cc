#include "runtime/data/input_masks.h"

#include <algorithm>
#include <array>
#include <vector>

#include "gmock/gmock.h"

namespace hadal {
namespace {

using ::testing::Each;

constexpr int32_t kWidth = 20;

std::vector<float> Masked(const SpecAugment& policy, const AugmentedSentence& at, size_t frames) {
  std::vector<float> values(frames * kWidth, 1.0f);
  ApplySpecAugment(policy, at, kWidth, values);
  return values;
}

// Of a single mask: where it begins and how many places it covers, over filters or over frames.
struct Block {
  int64_t begin = 0, size = 0;
};
Block BlockOf(const std::vector<float>& values, size_t stride, size_t places) {
  Block block;
  for (size_t i = 0; i < places; ++i) {
    if (values[i * stride] != 0) continue;
    if (block.size == 0) block.begin = static_cast<int64_t>(i);
    EXPECT_EQ(block.begin + block.size++, static_cast<int64_t>(i)) << "one block without gaps";
  }
  return block;
}

// Widths are uniform over 0 … most and beginnings over what is left: within 5 standard deviations of their means.
TEST(SpecAugmentTest, WidthsAndBeginningsAreUniformWithTheirEnds) {
  constexpr uint32_t kDraws = 20000;
  const SpecAugment filters = {.frequency_masks = 1, .frequency_width = 7}, time = {.time_masks = 1, .time_width = 9};
  std::vector<int64_t> filter_widths(9, 0), time_widths(11, 0);
  std::array<bool, 2> at_ends = {};
  for (uint32_t i = 0; i < kDraws; ++i) {
    const Block of_filters = BlockOf(Masked(filters, {.seed = 3, .step = i}, 1), 1, kWidth);
    const Block of_time = BlockOf(Masked(time, {.seed = 3, .sentence = i}, 30), kWidth, 30);
    ++filter_widths[static_cast<size_t>(of_filters.size)];
    ++time_widths[static_cast<size_t>(of_time.size)];
    at_ends[0] |= of_filters.size > 0 && of_filters.begin == 0;
    at_ends[1] |= of_filters.size > 0 && of_filters.begin + of_filters.size == kWidth;
  }
  EXPECT_THAT(at_ends, Each(true));
  for (size_t width = 0; width < 8; ++width) EXPECT_NEAR(filter_widths[width], kDraws / 8.0, 240) << width;
  for (size_t width = 0; width < 10; ++width) EXPECT_NEAR(time_widths[width], kDraws / 10.0, 215) << width;
  EXPECT_EQ(filter_widths[8], 0);
  EXPECT_EQ(time_widths[10], 0);
}

// A first mask without width masks nothing.
TEST(SpecAugmentTest, NeighboursShareNoMask) {
  const SpecAugment second{.frequency_masks = 1, .time_masks = 1, .time_width = 9},
      first{.time_masks = 1, .time_width = 9};
  int equal = 0;
  for (uint32_t s = 0; s < 40; ++s) {
    equal +=
        Masked(second, {.seed = 3, .sentence = s}, 30) == Masked(first, {.seed = 3, .sentence = s + 1}, 30) ? 1 : 0;
  }
  EXPECT_LT(equal, 20);
}

TEST(SpecAugmentTest, AMaskCoversAllFramesOrAllFilters) {
  bool any = false;
  for (uint32_t step = 0; step < 20; ++step) {
    const std::vector<float> filters = Masked({.frequency_masks = 1, .frequency_width = 7}, {.step = step}, 3);
    const std::vector<float> time = Masked({.time_masks = 1, .time_width = 2}, {.step = step}, 3);
    for (size_t i = 0; i < filters.size(); ++i) {
      EXPECT_EQ(filters[i], filters[i % kWidth]);
      EXPECT_EQ(time[i], time[i / kWidth * kWidth]);
    }
    any |= std::ranges::count(filters, 0.0f) > 0;
  }
  EXPECT_TRUE(any);
}

TEST(SpecAugmentTest, AShareOfShortUtterancesStays) {
  for (uint32_t step = 0; step < 200; ++step) {
    const SpecAugment policy = {.time_masks = 1, .time_width = 100, .time_share = 0.2};
    EXPECT_LE(BlockOf(Masked(policy, {.step = step}, 14), kWidth, 14).size, 2);
    EXPECT_EQ(BlockOf(Masked(policy, {.step = step}, 4), kWidth, 4).size, 0) << "not even one of four frames";
  }
}

TEST(SpecAugmentTest, EveryPartOfThePlaceAndEveryMaskDrawsAnew) {
  const SpecAugment policy = {.frequency_masks = 2, .frequency_width = 8, .time_masks = 2, .time_width = 30};
  const AugmentedSentence at = {.seed = 1, .step = 2, .micro_batch = 3, .sentence = 4};
  const std::vector<float> masked = Masked(policy, at, 60);
  EXPECT_EQ(Masked(policy, at, 60), masked);
  for (const AugmentedSentence& other : {AugmentedSentence{9, 2, 3, 4}, {1, 9, 3, 4}, {1, 2, 9, 4}, {1, 2, 3, 9}}) {
    EXPECT_NE(Masked(policy, other, 60), masked);
  }
  SpecAugment single = policy;
  single.time_masks = 1;
  bool more = false;
  for (uint32_t step = 0; step < 10; ++step)
    more |= Masked(single, {.step = step}, 60) != Masked(policy, {.step = step}, 60);
  EXPECT_TRUE(more) << "the second mask is another one";
}

}  // namespace
}  // namespace hadal
