// The planned sizes of decoding's buffers; what they translate: tests/integration/decoder_test.cc.
#include "pipeline/layout/decode_capacity.h"

#include <set>

#include "gmock/gmock.h"
#include "pipeline/layout/row_bucket.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;

// Sublayers: source embedding, 2 × 2 of the encoder, target embedding 5, 4 × 3 of the decoder, head 18.
ModelPlan Plan() {
  return TinyPlan(
      {.encoder_layers = 2, .decoder_layers = 4, .d_model = 16, .d_ff = 32, .heads = 2, .max_positions = 64});
}

// In two stages, the second from sublayer `second` on.
PipelineLayout TwoStages(const ModelPlan& plan, int32_t second) {
  return MakePipelineLayout(plan, {}, {.split = {second}}, 2).value();
}

// Keys and values of 16 floats.
TEST(CacheRowBytes, AreThoseOfEachDecoderLayerThatAttendsOnTheRank) {
  ModelPlan plan = Plan();
  constexpr int64_t kLayer = 2 * 16 * 4;
  EXPECT_EQ(CacheRowBytes(plan, TwoStages(plan, 9), 0), kLayer);
  EXPECT_EQ(CacheRowBytes(plan, TwoStages(plan, 9), 1), 3 * kLayer);
  EXPECT_EQ(CacheRowBytes(plan, TwoStages(plan, 7), 0), kLayer) << "self-attention alone";
  EXPECT_EQ(CacheRowBytes(plan, TwoStages(plan, 7), 1), 4 * kLayer) << "its cross-attention";
  plan.compute_storage = Storage::kBFloat16;
  EXPECT_EQ(CacheRowBytes(plan, TwoStages(plan, 9), 1), 3 * kLayer / 2);
}

// A sentence: row 0, 16 of its source, 2 paths of 20 tokens and </s>; all 8: row 0, 128 of sources, 16 paths.
TEST(DecodeCapacity, CachesKeepTheLimitOnTheRankWithTheMostLayers) {
  constexpr int64_t kSentence = 1 + 16 + 2 * 21, kAll = 1 + 128 + 16 * 21, kRow = 3 * 2 * 16 * 4;
  const ModelPlan plan = Plan();
  const PipelineLayout pipeline = TwoStages(plan, 9);
  const auto capacity = [&](int64_t limit) {
    return MakeDecodeCapacity(
        plan, pipeline,
        {.beam = {.beam = 2, .max_length_b = 20}, .cache_limit_bytes = limit, .longest_source = 16, .sentences = 8});
  };
  const absl::Status refused = capacity(kSentence * kRow - 1).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_NE(refused.message().find(std::to_string(kSentence * kRow - 1)), std::string::npos) << refused;
  struct Case {
    int64_t limit;
    int32_t lanes;
    int64_t cache_rows;
  };
  for (const auto& [limit, lanes, cache_rows] : {Case{kSentence * kRow, 1, kSentence},
                                                 {2 * kSentence * kRow - 1, 1, 2 * kSentence - 1},
                                                 {2 * kSentence * kRow, 2, kSentence},
                                                 {5 * kSentence * kRow, 2, 5 * kSentence / 2},
                                                 {int64_t{1} << 30, 2, kAll}}) {
    const absl::StatusOr<DecodeCapacity> made = capacity(limit);
    EXPECT_EQ(made->lanes, lanes) << limit;
    EXPECT_EQ(made->cache_rows, cache_rows) << limit;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(MakeDecodeCapacity(plan, pipeline, {.longest_source = 1}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(MakeDecodeCapacity(plan, pipeline, {.sentences = -1}).status()));
}

// 2.7 GB, where nobody has set a limit.
TEST(DecodeCapacity, WithoutALimitASentenceOfTheDeepestModelFitsOneRank) {
  const ModelPlan plan =
      ModelPlan::Make({.encoder_layers = 500, .decoder_layers = 500, .source_vocabulary = 50, .target_vocabulary = 50});
  const PipelineLayout pipeline = MakePipelineLayout(plan, {}, {}, 1).value();
  const absl::StatusOr<DecodeCapacity> made = MakeDecodeCapacity(plan, pipeline, {});
  EXPECT_EQ(made->cache_rows, 1 + 512 + 4 * 201);
}

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
