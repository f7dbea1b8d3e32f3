// Packs sentences into micro-batches: the one place that adds </s> and shifts the decoder's input.
//
//   source row list  = prefix, source tokens, </s>          (|prefix| + S + 1 rows; none where there is no source side)
//   target_input     = </s>, target tokens                  (T + 1 rows)
//   target           = target tokens, </s>                  (T + 1 rows)
// Training, validation, scoring and translation all pack with these functions. (Translation packs samples with an empty
// target: one row, which it ignores.) Thread safety: pure functions on their arguments.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/corpus.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

// Rows that one micro-batch may hold, </s> counted.
struct BatchCapacity {
  int64_t source_rows = 0;
  int64_t target_rows = 0;
  int64_t sentence_rows = std::numeric_limits<int64_t>::max();  // of one side of one sentence: the model's positions
};

// Rows that one sample takes, or that a batch has used.
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

// Whether a batch's rows are within its capacity.
inline bool Fits(const BatchRows& rows, const BatchCapacity& capacity) {
  return rows.source <= capacity.source_rows && rows.target <= capacity.target_rows;
}

// Whether a batch may hold this sentence at all.
inline bool FitsAlone(const BatchRows& rows, const BatchCapacity& capacity) {
  return Fits(rows, capacity) && std::max(rows.source, rows.target) <= capacity.sentence_rows;
}

// Empties `batch` for reuse; its memory stays.
void ClearBatch(PackedBatch& batch);
// Adds one sentence at the end; `index` goes to batch.samples. The caller checks capacity.
void AppendSentence(const SampleView& sample, int64_t index, PackedBatch& batch);

// Packs `samples` in order; each batch is filled until the next sentence would not fit. samples[i] of a batch is an
// index into `samples`; micro_batch counts from 0 in the result. Errors: InvalidArgument naming the first sentence that
// is longer than a capacity.
absl::StatusOr<std::vector<PackedBatch>> PackSentences(std::span<const SampleView> samples,
                                                       const BatchCapacity& capacity);

}  // namespace hadal
