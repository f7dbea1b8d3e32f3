#include "pipeline/layout/row_bucket.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;

TEST(RowBucketTest, RowsAreRoundedUpToEighthsOfTheCapacity) {
  EXPECT_EQ(BucketRows(0, 4096, 128), 0);
  EXPECT_EQ(BucketRows(1, 4096, 128), 512);
  EXPECT_EQ(BucketRows(512, 4096, 128), 512);
  EXPECT_EQ(BucketRows(513, 4096, 128), 1024);
  EXPECT_EQ(BucketRows(4096, 4096, 128), 4096);
  EXPECT_EQ(BucketRows(130, 600, 128), 256) << "at least 128 rows a bucket";
  EXPECT_EQ(BucketRows(600, 600, 128), 600) << "the last bucket is the capacity";
  EXPECT_EQ(BucketRows(3, 20, 128), 20);
  EXPECT_EQ(BucketRows(20, 20, 1), 20);
  EXPECT_EQ(BucketRows(10, 100, 1), 16) << "whole runs of eight";
}

TEST(RowBucketTest, ThereAreAtMostEightBuckets) {
  for (const int64_t capacity : {1, 7, 100, 129, 1000, 1023, 4096, 5000}) {
    std::set<int64_t> buckets;
    for (int64_t rows = 1; rows <= capacity; ++rows) {
      const int64_t bucket = BucketRows(rows, capacity, 1);
      EXPECT_GE(bucket, rows);
      EXPECT_LE(bucket, capacity);
      buckets.insert(bucket);
    }
    EXPECT_LE(buckets.size(), 8u) << capacity;
  }
}

TEST(RowBucketTest, PaddingRowsStandBehindTheSentences) {
  const PackedBatch batch{.micro_batch = 3,
                          .source = {5, 6, 2},
                          .source_offsets = {0, 3},
                          .target_input = {2, 7},
                          .target = {7, 2},
                          .target_offsets = {0, 2},
                          .samples = {9}};
  PackedBatch padded;
  PadToBuckets(batch, {.source_rows = 5, .target_rows = 4, .max_length = 4}, 4, padded);
  EXPECT_THAT(padded.source, ElementsAre(5, 6, 2, -1, -1)) << "the bucket of 8 ends at the capacity";
  EXPECT_THAT(padded.target_input, ElementsAre(2, 7, -1, -1));
  EXPECT_THAT(padded.target, ElementsAre(7, 2, -1, -1));
  EXPECT_EQ(padded.source_offsets, batch.source_offsets);
  EXPECT_EQ(padded.micro_batch, 3);
  EXPECT_EQ(padded.source_rows(), 5);
  EXPECT_EQ(padded.sentence_source_rows(), 3);
  EXPECT_EQ(padded.target_rows(), 4);
  EXPECT_EQ(padded.sentence_target_rows(), 2);
}

TEST(RowBucketTest, PlainTextKeepsNoSource) {
  const PackedBatch batch{
      .source_offsets = {0, 0}, .target_input = {2}, .target = {2}, .target_offsets = {0, 1}, .samples = {0}};
  PackedBatch padded;
  PadToBuckets(batch, {.source_rows = 0, .target_rows = 4, .max_length = 4}, 1, padded);
  EXPECT_EQ(padded.source_rows(), 0);
  EXPECT_EQ(padded.sentence_source_rows(), 0);
}

}  // namespace
}  // namespace hadal
