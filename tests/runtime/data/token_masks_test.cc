// Which tokens are masked, by what, and that batches change nothing.
#include "runtime/data/input_masks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/data/corpus.h"
#include "runtime/random.h"

namespace hadal {
namespace {

constexpr int32_t kVocabulary = 60, kMask = 59;

// Sentences of ordinary tokens and one special token each.
std::vector<std::vector<int32_t>> Sentences() {
  std::vector<std::vector<int32_t>> sentences(400);
  for (size_t n = 0; n < sentences.size(); ++n) {
    for (size_t t = 0; t < 5 + n % 20; ++t) {
      sentences[n].push_back(static_cast<int32_t>(kSpecialTokens + (7 * n + t) % (kMask - kSpecialTokens)));
    }
    sentences[n][n % 5] = n % 2 == 0 ? kUnknownToken : kMask;
  }
  return sentences;
}

TokenMasking Masking(double share = 0.3) {
  return {.share = share, .mask_token = kMask, .vocabulary = kVocabulary, .special = {0, 1, 2, 3, kMask}};
}

PackedBatch Masked(const TokenMasking& masking, const std::vector<int64_t>& samples, uint64_t seed = 1,
                   uint32_t epoch = 0) {
  static const auto& sentences = *new std::vector<std::vector<int32_t>>(Sentences());
  PackedBatch batch;
  ClearBatch(batch);
  for (const int64_t sample : samples) {
    AppendSentence({.target = sentences[static_cast<size_t>(sample)], .has_source = false}, sample, batch);
  }
  MaskTokens(masking, seed, epoch, batch);
  return batch;
}

std::vector<int64_t> AllSamples() {
  std::vector<int64_t> samples(Sentences().size());
  for (size_t n = 0; n < samples.size(); ++n) samples[n] = static_cast<int64_t>(n);
  return samples;
}

TEST(TokenMasksTest, SharesAreThoseOfBert) {
  const PackedBatch batch = Masked(Masking(), AllSamples());
  const PackedBatch plain = Masked(Masking(0), AllSamples());
  EXPECT_TRUE(plain.target.empty());
  ASSERT_EQ(plain.source.size(), batch.source.size());
  double ordinary = 0, masks = 0, kept = 0;
  std::map<int32_t, int> random;
  for (const int32_t token : plain.source) ordinary += token >= kSpecialTokens && token != kMask;
  size_t next = 0;
  for (size_t row = 0; row < batch.source.size(); ++row) {
    const bool is_masked = next < batch.target.size() && batch.target_input[next] == static_cast<int32_t>(row);
    if (!is_masked) {
      EXPECT_EQ(batch.source[row], plain.source[row]);
      continue;
    }
    EXPECT_EQ(batch.target[next++], plain.source[row]);
    EXPECT_GE(plain.source[row], kSpecialTokens);
    EXPECT_NE(plain.source[row], kMask);
    if (batch.source[row] == kMask) {
      ++masks;
    } else if (batch.source[row] == plain.source[row]) {
      ++kept;
    } else {
      ++random[batch.source[row]];
    }
  }
  EXPECT_EQ(next, batch.target.size());
  const auto count = static_cast<double>(batch.target.size());
  EXPECT_NEAR(count / ordinary, 0.3, 0.02);
  EXPECT_NEAR(masks / count, 0.8, 0.03);
  EXPECT_NEAR(kept / count, 0.1, 0.03);  // a random token may be the token itself
  EXPECT_GT(random.size(), 45u);
  EXPECT_GE(random.begin()->first, kSpecialTokens);
  EXPECT_LT(random.rbegin()->first, kMask);
}

TEST(TokenMasksTest, OnlyMasks) {
  TokenMasking masking = Masking(1);
  masking.only_mask = true;
  const PackedBatch batch = Masked(masking, {0, 1, 2});
  for (const int32_t row : batch.target_input) EXPECT_EQ(batch.source[static_cast<size_t>(row)], kMask);
  EXPECT_EQ(batch.target.size(), batch.source.size() - 6);  // </s> and the special token of each
}

// One after the other or together, in any order; another epoch or seed has other masks.
TEST(TokenMasksTest, DependOnTheSampleAlone) {
  const TokenMasking masking = Masking();
  const PackedBatch together = Masked(masking, {8, 3, 19});
  std::vector<int32_t> source, target, rows;
  for (const int64_t sample : {8, 3, 19}) {
    const PackedBatch alone = Masked(masking, {sample});
    for (const int32_t row : alone.target_input) rows.push_back(row + static_cast<int32_t>(source.size()));
    source.insert(source.end(), alone.source.begin(), alone.source.end());
    target.insert(target.end(), alone.target.begin(), alone.target.end());
    EXPECT_EQ(alone.target_offsets, (std::vector<int32_t>{0, static_cast<int32_t>(alone.target.size())}));
  }
  EXPECT_EQ(together.source, source);
  EXPECT_EQ(together.target, target);
  EXPECT_EQ(together.target_input, rows);
  EXPECT_EQ(together.target_offsets.back(), static_cast<int32_t>(target.size()));
  EXPECT_NE(Masked(masking, {8, 3, 19}, 2).source, source);
  EXPECT_NE(Masked(masking, {8, 3, 19}, 1, 1).source, source);
}

// Those of saved runs, and none of the draws that order the samples.
TEST(TokenMasksTest, RowsAreDrawnByTheirCounters) {
  const TokenMasking masking = Masking();
  const PackedBatch masked = Masked(masking, {8, 3, 19}, /*seed=*/5, /*epoch=*/2);
  const PackedBatch plain = Masked(Masking(0), {8, 3, 19});
  std::vector<int32_t> expected;
  for (size_t n = 0; n < plain.samples.size(); ++n) {
    const RandomCounter counter{.seed = 5,
                                .step = 2,
                                .micro_batch = static_cast<uint32_t>(plain.samples[n]),
                                .sublayer = 1,
                                .site = RandomSite::kSampling};
    for (int32_t row = plain.source_offsets[n]; row < plain.source_offsets[n + 1]; ++row) {
      const uint32_t draw = Philox4x32(5, counter.At(static_cast<uint32_t>(row - plain.source_offsets[n])))[0];
      const bool special = std::ranges::binary_search(masking.special, plain.source[static_cast<size_t>(row)]);
      if (!special && draw < static_cast<uint64_t>(0.3 * 0x1p32)) expected.push_back(row);
    }
  }
  EXPECT_EQ(masked.target_input, expected);
}

// The documents of a block are one sample: the same masks as of a block without borders.
TEST(TokenMasksTest, DocumentsOfABlockHaveMasksOfTheirOwn) {
  PackedBatch whole, documents;
  AppendSentence({.target = std::vector<int32_t>(39, kSpecialTokens), .has_source = false}, 7, whole);
  for (int n = 0; n < 4; ++n) {
    AppendSentence({.target = std::vector<int32_t>(9, kSpecialTokens), .has_source = false}, 7, documents);
  }
  MaskTokens(Masking(0.5), 1, 0, whole);
  MaskTokens(Masking(0.5), 1, 0, documents);
  std::erase_if(whole.target_input, [](int32_t row) { return row % 10 == 9; });  // where documents end
  EXPECT_EQ(documents.target_input, whole.target_input);
}

// Words of three tokens; a tokenizer's special tokens may have any ids. The masks are those that each word's first
// token has without whole words.
TEST(TokenMasksTest, WholeWords) {
  const std::vector<int32_t> sentence = {1, 5, 6, 7, 10, 9, 0, 12, 13, 14, 59, 16, 58, 18, 19, 20};
  PackedBatch plain;
  for (int64_t sample = 0; sample < 200; ++sample) {
    AppendSentence({.target = sentence, .has_source = false}, sample, plain);
  }
  plain.continues.resize(plain.target.size());
  for (size_t row = 0; row < plain.target.size(); ++row) {
    const size_t t = row % (sentence.size() + 1);
    plain.continues[row] = t > 0 && t < sentence.size() && (t - 1) % 3 > 0;
  }
  TokenMasking masking{.share = 0.5, .only_mask = true, .mask_token = 9, .vocabulary = 60, .special = {2, 9, 58}};
  PackedBatch tokens = plain, words = plain;
  MaskTokens(masking, 1, 0, tokens);
  masking.whole_words = true;
  MaskTokens(masking, 1, 0, words);
  const auto masked = [](const PackedBatch& batch, size_t row) {
    return std::ranges::binary_search(batch.target_input, static_cast<int32_t>(row));
  };
  int partial = 0;
  bool begun = false;
  for (size_t row = 0; row < plain.target.size(); ++row) {
    const int32_t token = plain.target[row];
    const bool special = std::ranges::binary_search(masking.special, token);
    if (special) {
      EXPECT_FALSE(masked(words, row) || masked(tokens, row)) << token;
      continue;
    }
    if (!plain.continues[row]) begun = masked(tokens, row);
    EXPECT_EQ(masked(words, row), begun) << row;
    partial += masked(tokens, row) != begun ? 1 : 0;
    if (masked(words, row)) {
      EXPECT_EQ(words.source[row], 9);
    }
  }
  EXPECT_GT(partial, 100);
  masking.only_mask = false;
  PackedBatch random = plain;
  MaskTokens(masking, 1, 0, random);
  for (const int32_t row : random.target_input) EXPECT_NE(random.source[static_cast<size_t>(row)], 58);
}

}  // namespace
}  // namespace hadal
