// A micro-batch: concatenated sentence pairs with offsets, without padding to a rectangle.
//
// Conventions (fairseq's): source = tokens + </s>; decoder input = </s> + tokens; target = tokens + </s>. A pair of S
// source and T target tokens takes S + 1 source rows and T + 1 target rows. Monolingual text (language models) has
// target rows only; for an encoder alone they become source rows, and the target rows are the masked tokens
// (input_masks.h).
// The config fixes the largest numbers of rows (BatchCapacity). On a device, padding rows may follow the sentences:
// their tokens are kPaddingRow, and no offset includes them (pipeline/layout/row_bucket.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/tensor.h"

namespace hadal {

struct SampleView;  // corpus.h

// Special tokens (fairseq's order).
inline constexpr int32_t kBosToken = 0;
inline constexpr int32_t kPadToken = 1;
inline constexpr int32_t kEosToken = 2;
inline constexpr int32_t kUnknownToken = 3;
inline constexpr int32_t kSpecialTokens = 4;
inline constexpr int32_t kPaddingRow = -1;  // not a token id
// A flag in a bit above all ids. Corpora with a mask token set it in tokens that continue the word of the token before.
inline constexpr int32_t kContinuesWord = 1 << 30;

// Encoder rows of a sentence of `frames` frames of speech: two convolutions with stride 2. REQUIRES: frames ≥ 1.
constexpr int64_t SubsampledRows(int64_t frames) {
  for (int convolution = 0; convolution < 2; ++convolution) frames = (frames - 1) / 2 + 1;
  return frames;
}

// How a corpus's texts become rows.
struct TextForm {
  int32_t start_token = kEosToken;  // the first input of a text; with document_mask also of each document
  int32_t end_token = kEosToken;    // the last target of a text
  bool reserved_ids = true;         // ids 0 to 3 are the special tokens above; false: all ids are a tokenizer's
  int32_t block = 0;                // > 0: samples are blocks of `block` rows, cut from the stream of documents
  bool document_mask = false;       // attention and positions of a block's rows begin anew at each document
  bool operator==(const TextForm&) const = default;
};

struct PackedBatch {
  int32_t micro_batch = 0;              // index in the step's list of all replicas' micro-batches
  std::vector<int32_t> source;          // [source rows]
  std::vector<int32_t> source_offsets;  // [sentences + 1]: sentence n has rows [offsets[n], offsets[n + 1])
  std::vector<int32_t> target_input;    // [target rows]
  std::vector<int32_t> target;          // [target rows]
  std::vector<int32_t> target_offsets;  // [sentences + 1]
  std::vector<bool> continues;          // [target rows] whether the target had kContinuesWord; empty with a source side
  std::vector<int64_t> samples;         // [sentences] index in the corpus; documents of one block have the same index
  // Speech: `source` then has a kPadToken for each of the encoder's rows (SubsampledRows).
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

// Returns the least token id that the samples of a corpus may have.
constexpr int32_t LeastToken(const TextForm& form) { return form.reserved_ids && form.block == 0 ? kUnknownToken : 0; }

// The functions below pack sentences into micro-batches, for training, validation, scoring and translation. Only they
// add </s> and shift the decoder's input.
//   source           = prefix, source tokens, </s>          (|prefix| + S + 1 rows; none without a source side)
//   target_input     = </s>, target tokens                  (T + 1 rows)
//   target           = target tokens, </s>                  (T + 1 rows)
// `prefix` is SampleView's, such as a language tag. A language model's first input and last target are start_token and
// end_token of the sample's TextForm. A block of N + 1 tokens (TextForm::block = N):
//   target_input     = its tokens but the last, target = its tokens but the first   (N rows)
// With a document mask each row whose input is the start token begins another sentence of the batch; all sentences of a
// block are in one batch.
// Speech: `frames` has all F frames of a sentence, `source` SubsampledRows(F) times kPadToken, the encoder's rows.
// Translation packs samples with an empty target and ignores the one target row of each. Thread safety: pure functions.

// The most rows of one micro-batch, including </s>.
struct BatchCapacity {
  int64_t source_rows = 0;
  int64_t target_rows = 0;
  int64_t sentence_rows = std::numeric_limits<int64_t>::max();  // of one side of one sentence: max_positions
  bool operator==(const BatchCapacity&) const = default;
};

// The rows of a sample or of a batch.
struct BatchRows {
  int64_t source = 0;
  int64_t target = 0;

  BatchRows& operator+=(const BatchRows& other) {
    source += other.source;
    target += other.target;
    return *this;
  }
  friend BatchRows operator+(BatchRows a, const BatchRows& b) { return a += b; }
};

BatchRows RowsOf(const SampleView& sample);

inline bool Fits(const BatchRows& rows, const BatchCapacity& capacity) {
  return rows.source <= capacity.source_rows && rows.target <= capacity.target_rows;
}

// Whether a batch can hold this sentence at all.
inline bool FitsAlone(const BatchRows& rows, const BatchCapacity& capacity) {
  return Fits(rows, capacity) && std::max(rows.source, rows.target) <= capacity.sentence_rows;
}

// Returns the remedy for an error: which capacity or limit to raise for this sentence. REQUIRES: !FitsAlone.
std::string RemedyFor(const BatchRows& rows, const BatchCapacity& capacity);

// Empties `batch` for reuse; keeps its memory.
void ClearBatch(PackedBatch& batch);
// Appends one sentence; `index` is appended to batch.samples. The caller checks the capacity.
void AppendSentence(const SampleView& sample, int64_t index, PackedBatch& batch);

// Packs `samples` in order; each batch is filled until the next sentence does not fit. samples[i] of a batch is an
// index into `samples`; micro_batch counts from 0. Errors: InvalidArgument with the first sentence that is longer than
// a capacity.
absl::StatusOr<std::vector<PackedBatch>> PackSentences(std::span<const SampleView> samples,
                                                       const BatchCapacity& capacity);

}  // namespace hadal
