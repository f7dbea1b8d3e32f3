#include "runtime/data/sampling_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/random.h"

namespace hadal {
namespace {

// The limit on one sentence, where there is one.
std::string OfSentence(const BatchCapacity& capacity) {
  if (capacity.sentence_rows >= std::max(capacity.source_rows, capacity.target_rows)) return "";
  return absl::StrCat(", at most ", capacity.sentence_rows, " of one sentence");
}

absl::Status NothingFits(const Corpus& corpus, const BatchCapacity& capacity) {
  if (corpus.size() == 0)
    return absl::InvalidArgumentError("the corpus has no samples; prepare it again with some text");
  BatchRows shortest = RowsOf(corpus.sample(0));
  for (int64_t i = 1; i < corpus.size(); ++i) {
    const BatchRows rows = RowsOf(corpus.sample(i));
    if (rows.source + rows.target < shortest.source + shortest.target) shortest = rows;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("none of the corpus's ", corpus.size(), " samples fits a micro-batch of ", capacity.source_rows,
                   " source and ", capacity.target_rows, " target rows", OfSentence(capacity), "; the shortest takes ",
                   shortest.source, " and ", shortest.target, " (</s> counted): raise the capacities"));
}

// 64-bit draw `index` of an epoch's stream: two of them in each Philox block.
uint64_t DrawAt(uint64_t seed, int64_t epoch, uint64_t index) {
  const RandomCounter counter = {
      .seed = seed, .micro_batch = static_cast<uint32_t>(epoch), .site = RandomSite::kSampling};
  const std::array<uint32_t, 4> words = Philox4x32(seed, counter.At(static_cast<uint32_t>(index / 2)));
  const size_t first = index % 2 * 2;
  return static_cast<uint64_t>(words[first + 1]) << 32 | words[first];
}

// A number in [0, bound) from 64 random bits: the high word of their product (Lemire 2019). Its bias is below bound /
// 2^64.
uint64_t Below(uint64_t draw, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(draw) * bound) >> 64);
}

}  // namespace

absl::StatusOr<SamplingOrder> SamplingOrder::Create(const Corpus& corpus, const SamplingOptions& options) {
  if (options.micro_batches_per_step < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step of ", options.micro_batches_per_step, " micro-batches; at least 1 is needed"));
  }
  SamplingOrder order(corpus, options);
  for (int64_t i = 0; i < corpus.size(); ++i) {
    if (FitsAlone(RowsOf(corpus.sample(i)), options.capacity)) {
      order.fitting_.push_back(static_cast<uint32_t>(i));
    } else {
      ++order.too_long_;
    }
  }
  if (order.fitting_.empty()) return NothingFits(corpus, options.capacity);
  order.epoch_begin_.push_back(0);
  return order;
}

void SamplingOrder::Shuffle(int64_t epoch) {
  order_ = fitting_;
  for (size_t i = order_.size() - 1; i > 0; --i) {
    std::swap(order_[i], order_[Below(DrawAt(options_.seed, epoch, i), i + 1)]);
  }
}

void SamplingOrder::Pack() {
  batch_begin_.assign(1, 0);
  batch_rows_.clear();
  BatchRows used;
  for (size_t i = 0; i < order_.size(); ++i) {
    const BatchRows rows = RowsOf(corpus_->sample(order_[i]));
    if (!Fits(used + rows, options_.capacity)) {
      batch_begin_.push_back(static_cast<int64_t>(i));
      batch_rows_.push_back(used);
      used = {};
    }
    used += rows;
  }
  batch_begin_.push_back(static_cast<int64_t>(order_.size()));
  batch_rows_.push_back(used);
}

void SamplingOrder::EnterEpoch(int64_t epoch) {
  HADAL_CHECK_LE(epoch, std::numeric_limits<uint32_t>::max());
  Shuffle(epoch);
  Pack();
  epoch_ = epoch;
  if (epoch + 1 == static_cast<int64_t>(epoch_begin_.size())) {
    epoch_begin_.push_back(epoch_begin_.back() + static_cast<int64_t>(batch_rows_.size()));
  }
}

void SamplingOrder::Seek(int64_t index) {
  while (epoch_begin_.back() <= index) EnterEpoch(static_cast<int64_t>(epoch_begin_.size()) - 1);
  const auto after = std::upper_bound(epoch_begin_.begin(), epoch_begin_.end(), index);
  const int64_t epoch = after - epoch_begin_.begin() - 1;
  if (epoch != epoch_) EnterEpoch(epoch);
}

SamplingOrder::Batch SamplingOrder::BatchAt(int64_t index) {
  Seek(index);
  const auto k = static_cast<size_t>(index - epoch_begin_[static_cast<size_t>(epoch_)]);
  const auto begin = static_cast<size_t>(batch_begin_[k]);
  const auto end = static_cast<size_t>(batch_begin_[k + 1]);
  return {.samples = std::span<const uint32_t>(order_).subspan(begin, end - begin), .rows = batch_rows_[k]};
}

double SamplingOrder::EpochsDone(int64_t index) const {
  const auto k = static_cast<size_t>(index - epoch_begin_[static_cast<size_t>(epoch_)]);
  return static_cast<double>(epoch_) + static_cast<double>(batch_begin_[k + 1]) / static_cast<double>(order_.size());
}

void SamplingOrder::At(int64_t step, StepBatches& out) {
  HADAL_CHECK_GE(step, 0);
  const int64_t count = options_.micro_batches_per_step;
  out.micro_batches.resize(static_cast<size_t>(count));
  out.source_tokens = 0;
  out.target_tokens = 0;
  for (int64_t m = 0; m < count; ++m) {
    PackedBatch& batch = out.micro_batches[static_cast<size_t>(m)];
    ClearBatch(batch);
    batch.micro_batch = static_cast<int32_t>(m);
    const Batch chosen = BatchAt(step * count + m);
    for (const uint32_t sample : chosen.samples) AppendSentence(corpus_->sample(sample), sample, batch);
    out.source_tokens += chosen.rows.source;
    out.target_tokens += chosen.rows.target;
  }
  out.epochs_done = EpochsDone(step * count + count - 1);
}

StepBatches SamplingOrder::At(int64_t step) {
  StepBatches out;
  At(step, out);
  return out;
}

StepShapes SamplingOrder::ShapesAt(int64_t step) {
  HADAL_CHECK_GE(step, 0);
  const int64_t count = options_.micro_batches_per_step;
  StepShapes out;
  out.micro_batches.reserve(static_cast<size_t>(count));
  for (int64_t m = 0; m < count; ++m) {
    const Batch chosen = BatchAt(step * count + m);
    out.micro_batches.push_back({.sentences = static_cast<int64_t>(chosen.samples.size()),
                                 .source_rows = chosen.rows.source,
                                 .target_rows = chosen.rows.target});
    out.source_tokens += chosen.rows.source;
    out.target_tokens += chosen.rows.target;
  }
  out.epochs_done = EpochsDone(step * count + count - 1);
  return out;
}

absl::StatusOr<ValidationBatches> MakeValidationBatches(const Corpus& corpus, const BatchCapacity& capacity,
                                                        int64_t max_sentences) {
  ValidationBatches out;
  BatchRows used;
  int64_t taken = 0;
  for (int64_t i = 0; i < corpus.size() && (max_sentences <= 0 || taken < max_sentences); ++i) {
    const SampleView sample = corpus.sample(i);
    const BatchRows rows = RowsOf(sample);
    if (!FitsAlone(rows, capacity)) {
      ++out.too_long;
      continue;
    }
    if (out.batches.empty() || !Fits(used + rows, capacity)) {
      ClearBatch(out.batches.emplace_back());
      out.batches.back().micro_batch = static_cast<int32_t>(out.batches.size()) - 1;
      used = {};
    }
    used += rows;
    AppendSentence(sample, i, out.batches.back());
    out.target_tokens += rows.target;
    ++taken;
  }
  if (out.batches.empty()) return NothingFits(corpus, capacity);
  return out;
}

}  // namespace hadal
