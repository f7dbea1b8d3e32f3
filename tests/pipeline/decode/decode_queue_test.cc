#include "pipeline/decode/decode_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace hadal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr DecodeCapacity kLarge = {.sentences = 8, .source_rows = 1000, .longest_path = 50, .cache_rows = 100'000};

std::vector<std::vector<int32_t>> Groups(std::vector<int32_t> source_rows, const DecodeCapacity& capacity,
                                         int32_t beam) {
  DecodeQueue queue(std::move(source_rows), capacity, {.beam = beam});
  std::vector<std::vector<int32_t>> groups;
  while (!queue.empty()) groups.push_back(queue.Next());
  return groups;
}

TEST(DecodeQueue, TheLongestComeFirstAndEqualOnesInTheirOrder) {
  EXPECT_THAT(Groups({3, 9, 5, 9, 1}, kLarge, 4), ElementsAre(ElementsAre(1, 3, 2, 0, 4)));
  EXPECT_THAT(Groups({}, kLarge, 4), IsEmpty());
}

TEST(DecodeQueue, AGroupHasNoMoreSentencesThanALane) {
  DecodeCapacity capacity = kLarge;
  capacity.sentences = 2;
  EXPECT_THAT(Groups({5, 4, 3, 2, 1}, capacity, 20), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
}

// 12 sentences for 3 lanes: 4 each, although a lane would take 8. No thinner than steps of 16 rows: with a beam of 2 a
// lane is filled.
TEST(DecodeQueue, FewSentencesAreSpreadOverTheLanes) {
  const std::vector<int32_t> sources(12, 5);
  DecodeCapacity capacity = kLarge;
  capacity.lanes = 3;
  EXPECT_THAT(Groups(sources, capacity, 20), ElementsAre(testing::SizeIs(4), testing::SizeIs(4), testing::SizeIs(4)));
  EXPECT_THAT(Groups(sources, capacity, 2), ElementsAre(testing::SizeIs(8), testing::SizeIs(4)));
}

TEST(DecodeQueue, SourcesAndWhatTheCacheProbablyHoldsEndAGroup) {
  DecodeCapacity capacity = kLarge;
  capacity.source_rows = 20;
  EXPECT_THAT(Groups({10, 10, 1}, capacity, 4), ElementsAre(ElementsAre(0, 1), ElementsAre(2))) << "exactly full";
  capacity = kLarge;
  // 10 source rows: a path of 10 + 5 + 8, of which the 4 hypotheses share all but 24 rows in all. One row of the cache
  // is nobody's.
  capacity.cache_rows = 1 + 2 * (10 + 23 + 24);
  EXPECT_THAT(Groups({10, 10, 10}, capacity, 4), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  --capacity.cache_rows;
  EXPECT_THAT(Groups({10, 10, 10}, capacity, 4), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

// Samples share nothing, and a language model's texts may be as long as the longest: 50.
TEST(DecodeQueue, SamplesTakeAPathEach) {
  DecodeCapacity capacity = kLarge;
  const auto groups = [&](const std::vector<int32_t>& source_rows) {
    DecodeQueue queue(source_rows, capacity, {.beam = 4, .sampling = DrawOptions{}});
    std::vector<std::vector<int32_t>> found;
    while (!queue.empty()) found.push_back(queue.Next());
    return found;
  };
  capacity.cache_rows = 1 + 2 * (10 + 4 * 23);
  EXPECT_THAT(groups({10, 10, 10}), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  capacity.cache_rows = 1 + 2 * 4 * 50;
  EXPECT_THAT(groups({0, 0, 0}), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
}

TEST(DecodeQueue, WhatFitsNowhereIsTriedAlone) {
  DecodeCapacity capacity = kLarge;
  capacity.cache_rows = 1;
  EXPECT_THAT(Groups({10, 20}, capacity, 4), ElementsAre(ElementsAre(1), ElementsAre(0)));
}

TEST(DecodeQueue, WhatIsPutBackIsNext) {
  DecodeQueue queue({1, 2, 3}, kLarge, {.beam = 4});
  EXPECT_THAT(queue.Next(), ElementsAre(2, 1, 0));
  EXPECT_TRUE(queue.empty());
  queue.PutBack(0);
  queue.PutBack(1);
  EXPECT_THAT(queue.Next(), ElementsAre(1, 0));
}

}  // namespace
}  // namespace hadal
