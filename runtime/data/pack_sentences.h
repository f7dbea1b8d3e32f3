// Packs sentences into micro-batches, for training, validation, scoring and translation. Only this code adds </s> and
// shifts the decoder's input.
//
//   source row list  = prefix, source tokens, </s>          (|prefix| + S + 1 rows; none without a source side)
//   target_input     = </s>, target tokens                  (T + 1 rows)
//   target           = target tokens, </s>                  (T + 1 rows)
// Speech: `frames` has all F frames of a sentence, `source` SubsampledRows(F) times kPadToken, the encoder's rows.
// Translation packs samples with an empty target and ignores that one row. Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/corpus.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

// The most rows of one micro-batch, including </s>.
struct BatchCapacity {
  int64_t source_rows = 0;
  int64_t target_rows = 0;
  int64_t sentence_rows = std::numeric_limits<int64_t>::max();  // of one side of a sentence: the model's positions
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

// Which capacity or limit to raise for a sentence that does not fit, for an error. REQUIRES: !FitsAlone.
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
