// A micro-batch: concatenated sentence pairs with offsets, without padding to a rectangle.
//
// Conventions (fairseq's): source = tokens + </s>; decoder input = </s> + tokens; target = tokens + </s>. A pair of S
// source and T target tokens takes S + 1 source rows and T + 1 target rows. Monolingual text (language models) has
// target rows only.
// The config fixes capacities; the number of rows varies between batches. For a device padding rows may follow the
// sentences (pipeline/layout/row_bucket.h): tokens kPaddingRow outside of all offsets.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/tensor.h"

namespace hadal {

// Special tokens (fairseq's order).
inline constexpr int32_t kBosToken = 0;
inline constexpr int32_t kPadToken = 1;
inline constexpr int32_t kEosToken = 2;
inline constexpr int32_t kUnknownToken = 3;
inline constexpr int32_t kSpecialTokens = 4;
inline constexpr int32_t kPaddingRow = -1;  // not a token id

// Encoder rows of a sentence of `frames` frames of speech: two convolutions with stride 2. REQUIRES: frames ≥ 1.
constexpr int64_t SubsampledRows(int64_t frames) {
  for (int convolution = 0; convolution < 2; ++convolution) frames = (frames - 1) / 2 + 1;
  return frames;
}

struct PackedBatch {
  int32_t micro_batch = 0;              // index in the step's global list
  std::vector<int32_t> source;          // [source rows]
  std::vector<int32_t> source_offsets;  // [sentences + 1]
  std::vector<int32_t> target_input;    // [target rows]
  std::vector<int32_t> target;          // [target rows]
  std::vector<int32_t> target_offsets;  // [sentences + 1]
  std::vector<int64_t> samples;         // [sentences] index in the corpus
  // Speech: `source` then has kPadToken in each of a sentence's SubsampledRows.
  int32_t frame_width = 0;             // features of a frame; 0: text
  std::vector<float> frames;           // [frame_offsets.back(), frame_width]
  std::vector<int32_t> frame_offsets;  // [sentences + 1]; empty for text

  int64_t sentences() const { return static_cast<int64_t>(samples.size()); }
  int64_t source_rows() const { return static_cast<int64_t>(source.size()); }
  int64_t target_rows() const { return static_cast<int64_t>(target.size()); }
  // Rows of sentences, without padding rows.
  int64_t sentence_source_rows() const { return source_offsets.empty() ? source_rows() : source_offsets.back(); }
  int64_t sentence_target_rows() const { return target_offsets.empty() ? target_rows() : target_offsets.back(); }
};

}  // namespace hadal
