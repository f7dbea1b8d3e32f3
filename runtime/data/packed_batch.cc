#include "runtime/data/packed_batch.h"

#include "absl/strings/str_cat.h"
#include "runtime/data/corpus.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

int64_t SourceRowsOf(const SampleView& sample) {
  if (sample.frame_width > 0) {
    const auto frames = static_cast<int64_t>(sample.frames.size()) / sample.frame_width;
    return frames > 0 ? SubsampledRows(frames) : 0;  // 0: a corpus that was changed
  }
  return sample.has_source ? static_cast<int64_t>(sample.prefix.size() + sample.source.size()) + 1 : 0;
}

void AppendFrames(const SampleView& sample, PackedBatch& batch) {
  batch.frame_width = sample.frame_width;
  if (batch.frame_offsets.empty()) batch.frame_offsets.assign(1, 0);
  batch.frames.insert(batch.frames.end(), sample.frames.begin(), sample.frames.end());
  batch.frame_offsets.push_back(static_cast<int32_t>(batch.frames.size() / static_cast<size_t>(sample.frame_width)));
  batch.source.insert(batch.source.end(), static_cast<size_t>(SourceRowsOf(sample)), kPadToken);
}

// Removes kContinuesWord from the rows of plain text behind those that are done.
void TakeMarks(PackedBatch& batch) {
  for (size_t row = batch.continues.size(); row < batch.target.size(); ++row) {
    batch.continues.push_back((batch.target[row] & kContinuesWord) != 0);
    batch.target[row] &= ~kContinuesWord;
    batch.target_input[row] &= ~kContinuesWord;
  }
}

// REQUIRES: two tokens or more.
void AppendBlock(const SampleView& sample, int64_t index, PackedBatch& batch) {
  const std::span<const int32_t> tokens = sample.target;
  for (size_t row = 0; row + 1 < tokens.size(); ++row) {
    const bool begins = row == 0 || (sample.form.document_mask && tokens[row] == sample.form.start_token);
    if (begins && row > 0) batch.target_offsets.push_back(static_cast<int32_t>(batch.target.size()));
    if (begins) {
      batch.source_offsets.push_back(0);
      batch.samples.push_back(index);
    }
    batch.target_input.push_back(tokens[row]);
    batch.target.push_back(tokens[row + 1]);
  }
  batch.target_offsets.push_back(static_cast<int32_t>(batch.target.size()));
  TakeMarks(batch);
}

}  // namespace

BatchRows RowsOf(const SampleView& sample) {
  if (sample.form.block > 0) return {.target = std::max<int64_t>(std::ssize(sample.target) - 1, 0)};
  return {.source = SourceRowsOf(sample), .target = static_cast<int64_t>(sample.target.size()) + 1};
}

void ClearBatch(PackedBatch& batch) {
  batch.micro_batch = 0;
  batch.source.clear();
  batch.target_input.clear();
  batch.continues.clear();
  batch.target.clear();
  batch.samples.clear();
  batch.source_offsets.assign(1, 0);
  batch.target_offsets.assign(1, 0);
  batch.frame_width = 0;
  batch.frames.clear();
  batch.frame_offsets.clear();
}

void AppendSentence(const SampleView& sample, int64_t index, PackedBatch& batch) {
  if (batch.source_offsets.empty()) ClearBatch(batch);
  if (sample.form.block > 0) return AppendBlock(sample, index, batch);
  if (sample.frame_width > 0) {
    AppendFrames(sample, batch);
  } else if (sample.has_source) {
    batch.source.insert(batch.source.end(), sample.prefix.begin(), sample.prefix.end());
    batch.source.insert(batch.source.end(), sample.source.begin(), sample.source.end());
    batch.source.push_back(kEosToken);
  }
  batch.target_input.push_back(sample.form.start_token);
  batch.target_input.insert(batch.target_input.end(), sample.target.begin(), sample.target.end());
  batch.target.insert(batch.target.end(), sample.target.begin(), sample.target.end());
  batch.target.push_back(sample.form.end_token);
  batch.source_offsets.push_back(static_cast<int32_t>(batch.source.size()));
  batch.target_offsets.push_back(static_cast<int32_t>(batch.target.size()));
  batch.samples.push_back(index);
  if (!sample.has_source) TakeMarks(batch);
}

std::string RemedyFor(const BatchRows& rows, const BatchCapacity& capacity) {
  if (Fits(rows, capacity)) return "raise the model's positions (model.max_positions)";
  const bool both = std::max(rows.source, rows.target) > capacity.sentence_rows;
  return absl::StrCat("raise the capacities (batch.source_tokens, batch.target_tokens)",
                      both ? " and the model's positions (model.max_positions)" : "");
}

absl::StatusOr<std::vector<PackedBatch>> PackSentences(std::span<const SampleView> samples,
                                                       const BatchCapacity& capacity) {
  std::vector<PackedBatch> batches;
  BatchRows used;
  for (size_t i = 0; i < samples.size(); ++i) {
    const BatchRows rows = RowsOf(samples[i]);
    if (!FitsAlone(rows, capacity)) {
      return InvalidArgumentError("sentence ", i + 1, " takes ", rows.source, " source and ", rows.target,
                                  " target rows (</s> counted), a micro-batch holds ",
                                  std::min(capacity.source_rows, capacity.sentence_rows), " and ",
                                  std::min(capacity.target_rows, capacity.sentence_rows), "; shorten it, or ",
                                  RemedyFor(rows, capacity));
    }
    if (batches.empty() || !Fits(used + rows, capacity)) {
      ClearBatch(batches.emplace_back());
      batches.back().micro_batch = static_cast<int32_t>(batches.size()) - 1;
      used = {};
    }
    used += rows;
    AppendSentence(samples[i], static_cast<int64_t>(i), batches.back());
  }
  return batches;
}

}  // namespace hadal
