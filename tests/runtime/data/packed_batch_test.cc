#include "runtime/data/packed_batch.h"
#include "runtime/data/corpus.h"

#include "gmock/gmock.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<Sample> kSamples = {{.source = {10, 11}, .target = {20}},
                                      {.prefix = {9}, .source = {12}, .target = {21, 22}},
                                      {.source = {}, .target = {23}}};

std::vector<SampleView> Views() {
  std::vector<SampleView> views;
  for (const Sample& sample : kSamples) views.push_back(sample.view());
  return views;
}

TEST(PackSentencesTest, RowsFollowFairseqsConventions) {
  const std::vector<PackedBatch> batches = *PackSentences(Views(), {100, 100});
  ASSERT_EQ(batches.size(), 1u);
  const PackedBatch& batch = batches[0];
  EXPECT_THAT(batch.source, ElementsAre(10, 11, kEosToken, 9, 12, kEosToken, kEosToken));
  EXPECT_THAT(batch.source_offsets, ElementsAre(0, 3, 6, 7));
  EXPECT_THAT(batch.target_input, ElementsAre(kEosToken, 20, kEosToken, 21, 22, kEosToken, 23));
  EXPECT_THAT(batch.target, ElementsAre(20, kEosToken, 21, 22, kEosToken, 23, kEosToken));
  EXPECT_THAT(batch.target_offsets, ElementsAre(0, 2, 5, 7));
  EXPECT_THAT(batch.samples, ElementsAre(0, 1, 2));
}

TEST(PackSentencesTest, EachSideOpensANewBatchWhenItIsFull) {
  const std::vector<PackedBatch> by_source = *PackSentences(Views(), {6, 100});
  ASSERT_EQ(by_source.size(), 2u);
  EXPECT_THAT(by_source[0].samples, ElementsAre(0, 1));  // exactly full
  EXPECT_THAT(by_source[1].samples, ElementsAre(2));
  EXPECT_EQ(by_source[1].micro_batch, 1);
  EXPECT_EQ(PackSentences(Views(), {5, 100})->size(), 2u);
  EXPECT_EQ(PackSentences(Views(), {100, 4})->size(), 3u);
  EXPECT_EQ(PackSentences({}, {5, 5})->size(), 0u);
}

TEST(PackSentencesTest, PlainTextHasTargetRowsOnly) {
  std::vector<SampleView> views;
  for (const Sample& sample : kSamples) views.push_back({.target = sample.target, .has_source = false});
  const std::vector<PackedBatch> batches = *PackSentences(views, {0, 5});
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].source_rows(), 0);
  EXPECT_THAT(batches[0].source_offsets, ElementsAre(0, 0, 0));
  EXPECT_THAT(batches[0].target_input, ElementsAre(kEosToken, 20, kEosToken, 21, 22));
  EXPECT_THAT(batches[0].target, ElementsAre(20, kEosToken, 21, 22, kEosToken));
  EXPECT_THAT(batches[1].target, ElementsAre(23, kEosToken));
}

TEST(PackSentencesTest, ABlocksInputsAndTargetsAreItsTokensShiftedByOne) {
  const std::vector<int32_t> tokens = {9, 5, 6, 9, 7, 9};
  SampleView block{.target = tokens, .has_source = false, .form = {.start_token = 9, .end_token = 9, .block = 5}};
  const PackedBatch whole = (*PackSentences(std::vector{block, block}, {0, 100}))[0];
  EXPECT_THAT(whole.target_input, ElementsAre(9, 5, 6, 9, 7, 9, 5, 6, 9, 7));
  EXPECT_THAT(whole.target, ElementsAre(5, 6, 9, 7, 9, 5, 6, 9, 7, 9));
  EXPECT_THAT(whole.target_offsets, ElementsAre(0, 5, 10));
  block.form.document_mask = true;
  const PackedBatch masked = (*PackSentences(std::vector{block, block}, {0, 100}))[0];
  EXPECT_THAT(masked.target, whole.target);
  EXPECT_THAT(masked.target_offsets, ElementsAre(0, 3, 5, 8, 10)) << "a document's rows begin at its start token";
  EXPECT_THAT(masked.source_offsets, ElementsAre(0, 0, 0, 0, 0));
  EXPECT_THAT(masked.samples, ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(PackSentences(std::vector{block, block}, {0, 9})->size(), 2u) << "a block stays together";
}

TEST(PackSentencesTest, ATextHasTheEndsOfItsForm) {
  const std::vector<int32_t> tokens = {5, 6};
  const SampleView text{.target = tokens, .has_source = false, .form = {.start_token = 0, .end_token = 1}};
  const PackedBatch batch = (*PackSentences(std::vector{text}, {0, 100}))[0];
  EXPECT_THAT(batch.target_input, ElementsAre(0, 5, 6));
  EXPECT_THAT(batch.target, ElementsAre(5, 6, 1));
}

// A sentence has its own limit, and may not be longer than a batch either.
TEST(PackSentencesTest, WhatASentenceMayTakeIsTheSmallerLimit) {
  const auto error = [](const BatchCapacity& capacity) {
    return std::string(PackSentences(Views(), capacity).status().message());
  };
  EXPECT_EQ(error({3, 3, 3}), "");
  EXPECT_EQ(PackSentences(Views(), {3, 2}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error({2, 4, 3}), HasSubstr("sentence 1 takes 3 source and 2 target rows"));
  EXPECT_THAT(error({2, 4, 3}), HasSubstr("a micro-batch holds 2 and 3"));
  EXPECT_THAT(error({2, 4, 2}), HasSubstr("and the model's positions")) << "too long by its source alone";
  EXPECT_THAT(error({100, 100, 2}), HasSubstr("a micro-batch holds 2 and 2"));
  EXPECT_THAT(error({4, 2, 100}), HasSubstr("sentence 2 takes 3 source and 3 target rows"));
}

// Whatever it held.
TEST(PackSentencesTest, AClearedBatchEqualsANewOne) {
  const Sample speech{.target = {20}, .frames = {5, 6}, .frame_width = 2};
  const std::vector<int32_t> tokens = {5, 6 | kContinuesWord};
  const SampleView line{.target = tokens, .has_source = false}, sentence = kSamples[1].view();
  for (const auto& [before, sample] :
       {std::pair(kSamples[0].view(), sentence), {speech.view(), sentence}, {line, line}}) {
    PackedBatch reused, fresh;
    AppendSentence(before, 5, reused);
    ClearBatch(reused);
    AppendSentence(sample, 6, reused);
    AppendSentence(sample, 6, fresh);
    EXPECT_EQ(reused.source, fresh.source);
    EXPECT_EQ(reused.source_offsets, fresh.source_offsets);
    EXPECT_EQ(reused.target, fresh.target);
    EXPECT_EQ(reused.target_input, fresh.target_input);
    EXPECT_EQ(reused.target_offsets, fresh.target_offsets);
    EXPECT_EQ(reused.continues, fresh.continues);
    EXPECT_EQ(reused.samples, fresh.samples);
    EXPECT_EQ(reused.frame_width, fresh.frame_width);
    EXPECT_EQ(reused.frames, fresh.frames);
    EXPECT_EQ(reused.frame_offsets, fresh.frame_offsets);
  }
}

TEST(PackSentencesTest, SpeechHasFramesAndARowForEveryFourthOfThem) {
  const std::vector<Sample> speech = {{.target = {20}, .frames = std::vector<float>(2 * 9, 1.0f), .frame_width = 2},
                                      {.target = {21, 22}, .frames = {5, 6}, .frame_width = 2}};
  const std::vector<SampleView> views = {speech[0].view(), speech[1].view()};
  const std::vector<PackedBatch> batches = *PackSentences(views, {4, 5});
  ASSERT_EQ(batches.size(), 1u);
  const PackedBatch& batch = batches[0];
  EXPECT_EQ(batch.frame_width, 2);
  EXPECT_EQ(batch.frames.size(), 2u * 10);
  EXPECT_THAT(std::vector<float>(batch.frames.end() - 4, batch.frames.end()), ElementsAre(1, 1, 5, 6));
  EXPECT_THAT(batch.frame_offsets, ElementsAre(0, 9, 10));
  EXPECT_THAT(batch.source, ElementsAre(kPadToken, kPadToken, kPadToken, kPadToken)) << "9 frames, 5, 3; no </s>";
  EXPECT_THAT(batch.source_offsets, ElementsAre(0, 3, 4));
  EXPECT_THAT(batch.target_offsets, ElementsAre(0, 2, 5));
  EXPECT_EQ(PackSentences(views, {3, 5})->size(), 2u) << "encoder rows count";
  EXPECT_FALSE(PackSentences(views, {2, 5}).ok());
}

}  // namespace
}  // namespace hadal
