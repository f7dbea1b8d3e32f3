#include "runtime/data/sampling_order.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/random.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr size_t kAhead = 32;  // samples whose memory is prefetched

// Returns the limit on one sentence for an error message, or "".
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
                   shortest.source, " and ", shortest.target, " (</s> counted): ", RemedyFor(shortest, capacity)));
}

// The 64-bit draws of one shuffle, the `number`th of those called `name`; each Philox block has two.
class Draws {
 public:
  Draws(uint64_t seed, uint32_t name, int64_t number)
      : counter_{
            .seed = seed, .step = name, .micro_batch = static_cast<uint32_t>(number), .site = RandomSite::kSampling} {}

  uint64_t At(uint64_t index) {
    if (const uint64_t block = index / 2; block != block_) {
      words_ = Philox4x32(counter_.seed, counter_.At(static_cast<uint32_t>(block)));
      block_ = block;
    }
    const size_t first = index % 2 * 2;
    return static_cast<uint64_t>(words_[first + 1]) << 32 | words_[first];
  }

 private:
  RandomCounter counter_;
  uint64_t block_ = std::numeric_limits<uint64_t>::max();  // the block in words_
  std::array<uint32_t, 4> words_{};
};

// Returns a number in [0, bound) from 64 random bits: the high word of their product (Lemire 2019). Its bias is below
// bound / 2^64.
uint64_t Below(uint64_t draw, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(draw) * bound) >> 64);
}

// Fisher-Yates. Prefetches draws and places some steps ahead: with millions of samples every access waits for memory.
void Shuffle(Draws draws, std::vector<uint32_t>& values) {
  std::array<uint32_t, kAhead> partners;
  for (size_t end = values.size(); end > 1;) {
    const size_t count = std::min(kAhead, end - 1);
    for (size_t k = 0; k < count; ++k) {
      const size_t place = end - 1 - k;
      partners[k] = static_cast<uint32_t>(Below(draws.At(place), place + 1));
      __builtin_prefetch(&values[partners[k]], /*rw=*/1);
    }
    for (size_t k = 0; k < count; ++k) std::swap(values[end - 1 - k], values[partners[k]]);
    end -= count;
  }
}

// The name of a shuffle of corpora `c`; the only ones' is 0, whatever they are called.
uint32_t NameOf(const CorpusManifest& manifest, size_t c) {
  if (manifest.corpora.size() < 2) return 0;
  return Crc32c(manifest.corpora[c].data(), manifest.corpora[c].size());
}
constexpr uint32_t kMerge = 1;  // the name of the shuffle that merges them

double TemperatureOf(const SamplingOptions& options, int64_t epoch) {
  if (options.temperatures.empty()) return 1;
  return options.temperatures[std::min(static_cast<size_t>(epoch), options.temperatures.size() - 1)];
}

bool AreIds(std::span<const int32_t> tokens, int32_t vocabulary_size) {
  bool all = true;  // no early exit, so that the compiler can vectorise
  for (const int32_t token : tokens) all &= token >= 0 && token < vocabulary_size;
  return all;
}

}  // namespace

absl::Status CorpusChanged(const Corpus& corpus, int64_t sample) {
  HADAL_RETURN_IF_ERROR(corpus.CheckUnchanged());  // names the file
  return absl::DataLossError(
      absl::StrCat(corpus.PathOf(sample),
                   ", or another file of the corpus: samples have changed while they were in use (other "
                   "lengths, or ids outside the vocabulary); restore it from a copy, or run hadal prepare "
                   "again, and resume"));
}

bool AreIdsOf(const CorpusManifest& manifest, std::span<const int32_t> source, std::span<const int32_t> target) {
  const bool right = manifest.frame_width > 0 || AreIds(source, manifest.source_vocabulary.size);
  return right && AreIds(target, manifest.target_vocabulary.size);
}

absl::StatusOr<SamplingOrder> SamplingOrder::Create(const Corpus& corpus, const SamplingOptions& options) {
  if (options.micro_batches_per_step < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step of ", options.micro_batches_per_step, " micro-batches; at least 1 is needed"));
  }
  for (const double temperature : options.temperatures) {
    if (!(temperature >= 1e-3) || !std::isfinite(temperature)) {
      return absl::InvalidArgumentError(absl::StrCat("a sampling temperature of ", temperature, "; give 1e-3 or more"));
    }
  }
  if (options.spec_augment.active() && corpus.manifest().frame_width == 0) {
    return absl::InvalidArgumentError("data.spec_augment masks the features of speech, and the corpus is text");
  }
  SamplingOrder order(corpus, options);
  HADAL_RETURN_IF_ERROR(order.Survey());
  if (order.samples() == 0) return NothingFits(corpus, options.capacity);
  return order;
}

absl::Status SamplingOrder::Survey() {
  const BatchCapacity& capacity = options_.capacity;
  const std::array<int64_t, 5> settings = {static_cast<int64_t>(options_.seed), capacity.source_rows,
                                           capacity.target_rows, capacity.sentence_rows, corpus_->size()};
  name_ = Crc32c(settings.data(), sizeof(settings));
  name_ = Crc32c(options_.temperatures.data(), options_.temperatures.size() * sizeof(double), name_);
  fitting_.resize(std::max<size_t>(1, corpus_->manifest().corpora.size()));
  if (fitting_.size() > 1) {
    for (const std::string& corpora : corpus_->manifest().corpora)
      name_ = Crc32c(corpora.data(), corpora.size(), name_);
  }
  for (int64_t i = 0; i < corpus_->size(); ++i) {
    const SampleView sample = corpus_->sample(i);
    if (static_cast<size_t>(sample.corpus_id) >= fitting_.size()) return CorpusChanged(*corpus_, i);
    const BatchRows rows = RowsOf(sample);
    const std::array<int64_t, 2> lengths = {rows.source, rows.target};
    name_ = Crc32c(lengths.data(), sizeof(lengths), name_);
    if (fitting_.size() > 1) name_ = Crc32c(&sample.corpus_id, sizeof(sample.corpus_id), name_);
    if (FitsAlone(rows, capacity)) {
      fitting_[static_cast<size_t>(sample.corpus_id)].push_back(static_cast<uint32_t>(i));
    } else {
      ++too_long_;
    }
  }
  return absl::OkStatus();
}

std::vector<uint32_t> SamplingOrder::FromPasses(size_t corpora, int64_t begin, int64_t count) const {
  const std::vector<uint32_t>& fitting = fitting_[corpora];
  const auto size = static_cast<int64_t>(fitting.size());
  std::vector<uint32_t> taken, pass;
  taken.reserve(static_cast<size_t>(count));
  for (int64_t at = begin; at < begin + count;) {
    pass = fitting;
    Shuffle(Draws(options_.seed, NameOf(corpus_->manifest(), corpora), at / size), pass);
    const int64_t first = at % size, last = std::min(size, first + begin + count - at);
    taken.insert(taken.end(), pass.begin() + first, pass.begin() + last);
    at += last - first;
  }
  return taken;
}

void SamplingOrder::Order() {
  std::vector<int64_t> sizes, begin(fitting_.size(), 0), quotas;
  for (const std::vector<uint32_t>& fitting : fitting_) sizes.push_back(static_cast<int64_t>(fitting.size()));
  const auto take = [&](int64_t epoch, int64_t epochs) {
    quotas = SamplingQuotas(sizes, TemperatureOf(options_, epoch));
    for (size_t c = 0; c < quotas.size(); ++c) begin[c] += epochs * quotas[c];
  };
  // Epochs before the last temperature one by one, the others, which are alike, at once.
  const int64_t varied = std::min(epoch_, std::max<int64_t>(std::ssize(options_.temperatures) - 1, 0));
  for (int64_t epoch = 0; epoch < varied; ++epoch) take(epoch, 1);
  take(epoch_, epoch_ - varied);
  if (fitting_.size() == 1) {
    order_ = FromPasses(0, begin[0], quotas[0]);
    return;
  }
  order_.clear();  // of each place, its corpora; then the sample
  for (size_t c = 0; c < fitting_.size(); ++c) {
    order_.insert(order_.end(), static_cast<size_t>(quotas[c]), static_cast<uint32_t>(c));
  }
  Shuffle(Draws(options_.seed, kMerge, epoch_), order_);
  std::vector<std::vector<uint32_t>> taken;
  for (size_t c = 0; c < fitting_.size(); ++c) taken.push_back(FromPasses(c, begin[c], quotas[c]));
  std::vector<size_t> next(fitting_.size(), 0);
  for (uint32_t& place : order_) place = taken[place][next[place]++];
}

void SamplingOrder::Pack() {
  batch_begin_.assign(1, 0);
  batch_rows_.clear();
  BatchRows used;
  for (size_t i = 0; i < order_.size(); ++i) {
    if (i + kAhead < order_.size()) corpus_->Prefetch(order_[i + kAhead]);
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

void SamplingOrder::EnterEpoch(int64_t epoch, int64_t first_micro_batch) {
  HADAL_CHECK_LE(epoch, std::numeric_limits<uint32_t>::max());
  epoch_ = epoch;
  epoch_begin_ = first_micro_batch;
  Order();
  Pack();
  ++epochs_entered_;
  known_starts_.emplace(epoch_begin_ + static_cast<int64_t>(batch_rows_.size()), epoch_ + 1);
}

void SamplingOrder::Seek(int64_t index) {
  while (true) {
    const auto [first_micro_batch, epoch] = *std::prev(known_starts_.upper_bound(index));
    if (epoch != epoch_) EnterEpoch(epoch, first_micro_batch);
    if (index < epoch_begin_ + static_cast<int64_t>(batch_rows_.size())) return;
  }
}

EpochPosition SamplingOrder::current_epoch() const {
  return {.order = name_, .epoch = std::max<int64_t>(epoch_, 0), .micro_batch = epoch_begin_};
}

bool SamplingOrder::Continue(const EpochPosition& start) {
  if (start.order != name_ || start.epoch < 0 || start.micro_batch < start.epoch) return false;
  known_starts_.emplace(start.micro_batch, start.epoch);
  return true;
}

SamplingOrder::Batch SamplingOrder::BatchAt(int64_t index) {
  Seek(index);
  const auto k = static_cast<size_t>(index - epoch_begin_);
  const auto begin = static_cast<size_t>(batch_begin_[k]);
  const auto end = static_cast<size_t>(batch_begin_[k + 1]);
  return {.samples = std::span<const uint32_t>(order_).subspan(begin, end - begin), .rows = batch_rows_[k]};
}

double SamplingOrder::EpochsDone(int64_t index) const {
  const auto k = static_cast<size_t>(index - epoch_begin_);
  return static_cast<double>(epoch_) + static_cast<double>(batch_begin_[k + 1]) / static_cast<double>(order_.size());
}

absl::Status SamplingOrder::Copy(const Batch& chosen, PackedBatch& batch) const {
  BatchRows used;
  for (const uint32_t index : chosen.samples) {
    const SampleView sample = corpus_->sample(index);
    const BatchRows rows = RowsOf(sample);
    used += rows;
    // Checked before the copy, so that a changed length cannot exhaust the memory.
    if (!FitsAlone(rows, options_.capacity) || !Fits(used, options_.capacity)) return CorpusChanged(*corpus_, index);
    AppendSentence(sample, index, batch);
  }
  const bool right = !chosen.samples.empty() && used.source == chosen.rows.source &&
                     used.target == chosen.rows.target && AreIdsOf(corpus_->manifest(), batch.source, batch.target);
  return right ? absl::OkStatus() : CorpusChanged(*corpus_, chosen.samples.empty() ? 0 : chosen.samples.front());
}

void SamplingOrder::Augment(int64_t step, PackedBatch& batch) const {
  if (batch.frame_width == 0 || !options_.spec_augment.active()) return;
  const auto width = static_cast<size_t>(batch.frame_width);
  for (size_t s = 0; s + 1 < batch.frame_offsets.size(); ++s) {
    const auto begin = static_cast<size_t>(batch.frame_offsets[s]);
    const auto end = static_cast<size_t>(batch.frame_offsets[s + 1]);
    ApplySpecAugment(options_.spec_augment,
                     {.seed = options_.seed,
                      .step = static_cast<uint32_t>(step),
                      .micro_batch = static_cast<uint32_t>(batch.micro_batch),
                      .sentence = static_cast<uint32_t>(s)},
                     batch.frame_width, std::span(batch.frames).subspan(begin * width, (end - begin) * width));
  }
}

absl::Status SamplingOrder::At(int64_t step, StepBatches& out) {
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
    HADAL_RETURN_IF_ERROR(Copy(chosen, batch));
    Augment(step, batch);
    out.source_tokens += chosen.rows.source;
    out.target_tokens += chosen.rows.target;
  }
  out.epochs_done = EpochsDone(step * count + count - 1);
  return corpus_->CheckUnchanged();  // after the copy: what was copied came from the verified files
}

StepBatches SamplingOrder::At(int64_t step) {
  StepBatches out;
  HADAL_CHECK(At(step, out).ok());
  return out;
}

std::vector<int64_t> SamplingQuotas(const std::vector<int64_t>& samples, double temperature) {
  const int64_t all = std::accumulate(samples.begin(), samples.end(), int64_t{0});
  const int64_t most = *std::max_element(samples.begin(), samples.end());
  std::vector<double> shares;
  double sum = 0;
  for (const int64_t n : samples) {  // relative to the largest, which keeps powers finite
    shares.push_back(n == 0 ? 0 : std::pow(static_cast<double>(n) / static_cast<double>(most), 1 / temperature));
    sum += shares.back();
  }
  std::vector<int64_t> quotas;
  std::vector<std::pair<double, size_t>> remainders;  // negative, so that the largest comes first, then the first
  int64_t left = all;
  for (size_t c = 0; c < samples.size(); ++c) {
    const double exact =
        temperature == 1 ? static_cast<double>(samples[c]) : static_cast<double>(all) * shares[c] / sum;
    quotas.push_back(static_cast<int64_t>(exact));
    if (samples[c] > 0) remainders.emplace_back(std::floor(exact) - exact, c);
    left -= quotas.back();
  }
  std::sort(remainders.begin(), remainders.end());
  for (size_t k = 0; left > 0; ++k, --left) ++quotas[remainders[k].second];
  return quotas;
}

absl::StatusOr<ValidationSamples> ChooseValidationSamples(const Corpus& corpus, const BatchCapacity& capacity,
                                                          int64_t max_sentences) {
  ValidationSamples out;
  std::vector<int64_t> taken(std::max<size_t>(1, corpus.manifest().corpora.size()));
  for (int64_t i = 0; i < corpus.size(); ++i) {
    const SampleView sample = corpus.sample(i);
    if (static_cast<size_t>(sample.corpus_id) >= taken.size()) return CorpusChanged(corpus, i);
    int64_t& of_corpus = taken[static_cast<size_t>(sample.corpus_id)];
    if (max_sentences > 0 && of_corpus == max_sentences) {
      if (taken.size() == 1) break;
      continue;
    }
    if (!FitsAlone(RowsOf(sample), capacity)) {
      ++out.too_long;
      continue;
    }
    out.samples.push_back(i);
    ++of_corpus;
  }
  if (out.samples.empty()) return NothingFits(corpus, capacity);
  return out;
}

absl::StatusOr<ValidationBatches> MakeValidationBatches(const Corpus& corpus, const BatchCapacity& capacity,
                                                        int64_t max_sentences) {
  HADAL_ASSIGN_OR_RETURN(const ValidationSamples chosen, ChooseValidationSamples(corpus, capacity, max_sentences));
  ValidationBatches out{.too_long = chosen.too_long};
  BatchRows used;
  for (const int64_t i : chosen.samples) {
    const SampleView sample = corpus.sample(i);
    const BatchRows rows = RowsOf(sample);
    // Checked before the copy, so that a changed length cannot exhaust the memory.
    if (!FitsAlone(rows, capacity)) return CorpusChanged(corpus, i);
    if (out.batches.empty() || sample.corpus_id != out.corpus_ids.back() || !Fits(used + rows, capacity)) {
      ClearBatch(out.batches.emplace_back());
      out.batches.back().micro_batch = static_cast<int32_t>(out.batches.size()) - 1;
      used = {};
      out.corpus_ids.push_back(sample.corpus_id);
    }
    used += rows;
    AppendSentence(sample, i, out.batches.back());
    out.target_tokens += rows.target;
  }
  for (const PackedBatch& batch : out.batches) {
    if (!AreIdsOf(corpus.manifest(), batch.source, batch.target)) return CorpusChanged(corpus, batch.samples.front());
  }
  HADAL_RETURN_IF_ERROR(corpus.CheckUnchanged());  // after the copy: what was copied came from the verified files
  return out;
}

}  // namespace hadal
