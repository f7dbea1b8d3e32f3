#include "runtime/data/sampling_order.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/math.h"
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
  if (corpus.size() == 0) return InvalidArgumentError("the corpus has no samples; prepare it again with some text");
  BatchRows shortest = RowsOf(corpus.sample(0));
  for (int64_t i = 1; i < corpus.size(); ++i) {
    const BatchRows rows = RowsOf(corpus.sample(i));
    if (rows.source + rows.target < shortest.source + shortest.target) shortest = rows;
  }
  return InvalidArgumentError("none of the corpus's ", corpus.size(), " samples fits a micro-batch of ",
                              capacity.source_rows, " source and ", capacity.target_rows, " target rows",
                              OfSentence(capacity), "; the shortest takes ", shortest.source, " and ", shortest.target,
                              " (</s> counted): ", RemedyFor(shortest, capacity));
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
  return DataLossError(corpus.PathOf(sample),
                       ", or another file of the corpus: samples have changed while they were in use (other "
                       "lengths, or ids outside the vocabulary); restore it from a copy, or run hadal prepare "
                       "again, and resume");
}

bool AreIdsOf(const CorpusManifest& manifest, std::span<const int32_t> source, std::span<const int32_t> target) {
  const bool right = manifest.frame_width > 0 || AreIds(source, manifest.source_vocabulary.size);
  return right && AreIds(target, manifest.target_vocabulary.size);
}

absl::StatusOr<SamplingOrder> SamplingOrder::Create(const Corpus& corpus, const SamplingOptions& options) {
  if (options.micro_batches_per_step < 1) {
    return InvalidArgumentError("a step of ", options.micro_batches_per_step, " micro-batches; at least 1 is needed");
  }
  for (const double temperature : options.temperatures) {
    if (!(temperature >= 1e-3) || !std::isfinite(temperature)) {
      return InvalidArgumentError("a sampling temperature of ", temperature, "; give 1e-3 or more");
    }
  }
  if (options.spec_augment.active() && corpus.manifest().frame_width == 0) {
    return InvalidArgumentError("data.spec_augment masks the features of speech, and the corpus is text");
  }
  SamplingOrder order(corpus, options);
  HADAL_RETURN_IF_ERROR(order.Survey());
  if (order.samples() == 0) return NothingFits(corpus, options.capacity);
  HADAL_RETURN_IF_ERROR(order.Continue(DataPlace()));
  return order;
}

absl::Status SamplingOrder::Survey() {
  const size_t corpora = std::max<size_t>(1, corpus_->manifest().corpora.size());
  for (int64_t i = 0; i < corpus_->size(); ++i) {
    if (static_cast<size_t>(corpus_->sample(i).corpus_id) >= corpora) return CorpusChanged(*corpus_, i);
  }
  too_long_ = corpus_->size();
  for (const std::vector<uint32_t>& of_text : FittingOf(options_.capacity)) too_long_ -= std::ssize(of_text);
  return absl::OkStatus();
}

const SamplingOrder::Fitting& SamplingOrder::FittingOf(const BatchCapacity& capacity) {
  for (const auto& [of, fitting] : fitting_) {
    if (of == capacity) return fitting;
  }
  Fitting& fitting = fitting_.emplace_back(capacity, Fitting()).second;
  fitting.resize(std::max<size_t>(1, corpus_->manifest().corpora.size()));
  for (int64_t i = 0; i < corpus_->size(); ++i) {
    const SampleView sample = corpus_->sample(i);
    const auto c = static_cast<size_t>(sample.corpus_id);
    if (c < fitting.size() && FitsAlone(RowsOf(sample), capacity)) fitting[c].push_back(static_cast<uint32_t>(i));
  }
  return fitting;
}

void SamplingOrder::SetQuotas(DataPlace& place) {
  std::vector<int64_t> sizes;
  for (const std::vector<uint32_t>& fitting : FittingOf(options_.capacity)) sizes.push_back(std::ssize(fitting));
  const std::vector<int64_t> quotas = SamplingQuotas(sizes, TemperatureOf(options_, place.epoch));
  for (size_t c = 0; c < quotas.size(); ++c) place.texts[c].quota = quotas[c];
}

std::vector<uint32_t> SamplingOrder::Take(size_t corpora, int64_t count, TextPlace& at) {
  std::vector<uint32_t> taken, pass;
  taken.reserve(static_cast<size_t>(count));
  while (std::ssize(taken) < count) {
    pass = FittingOf(at.shuffling.capacity)[corpora];
    if (at.read >= std::ssize(pass)) {
      at.shuffling = place_.shuffling;
      at.read = 0;
      pass = FittingOf(at.shuffling.capacity)[corpora];
      ++at.pass;
    }
    Shuffle(Draws(at.shuffling.seed, NameOf(corpus_->manifest(), corpora), at.pass), pass);
    const bool all_fit = at.shuffling.capacity == place_.shuffling.capacity;
    for (; at.read < std::ssize(pass) && std::ssize(taken) < count; ++at.read) {
      const uint32_t sample = pass[static_cast<size_t>(at.read)];
      if (all_fit || FitsAlone(RowsOf(corpus_->sample(sample)), place_.shuffling.capacity)) taken.push_back(sample);
    }
  }
  return taken;
}

void SamplingOrder::Order() {
  next_texts_ = place_.texts;
  if (next_texts_.size() == 1) {
    order_ = Take(0, next_texts_[0].quota, next_texts_[0]);
    return;
  }
  order_.clear();  // of each place, its corpora; then the sample
  std::vector<std::vector<uint32_t>> taken;
  for (size_t c = 0; c < next_texts_.size(); ++c) {
    const int64_t quota = next_texts_[c].quota;
    order_.insert(order_.end(), static_cast<size_t>(quota), static_cast<uint32_t>(c));
    taken.push_back(Take(c, quota, next_texts_[c]));
  }
  Shuffle(Draws(place_.shuffling.seed, kMerge, place_.epoch), order_);
  std::vector<size_t> next(next_texts_.size(), 0);
  for (uint32_t& place : order_) place = taken[place][next[place]++];
}

void SamplingOrder::Pack() {
  batch_begin_.assign(1, place_.read);
  batch_rows_.clear();
  BatchRows used;
  const auto end_batch = [&](size_t end) {
    batch_begin_.push_back(static_cast<int64_t>(end));
    batch_rows_.push_back(std::exchange(used, {}));
  };
  for (auto i = static_cast<size_t>(place_.read); i < order_.size(); ++i) {
    if (i + kAhead < order_.size()) corpus_->Prefetch(order_[i + kAhead]);
    const BatchRows rows = RowsOf(corpus_->sample(order_[i]));
    if (!AllFit() && !FitsAlone(rows, options_.capacity)) continue;
    if (!Fits(used + rows, options_.capacity)) end_batch(i);
    used += rows;
  }
  if (used.target > 0) end_batch(order_.size());
}

void SamplingOrder::Enter() {
  if (entered_) return;
  Order();
  fitting_.resize(1);
  Pack();
  next_batch_ = 0;
  entered_ = true;
  ++epochs_entered_;
}

void SamplingOrder::EnterNextEpoch() {
  HADAL_CHECK(entered_);
  HADAL_CHECK_LT(place_.epoch, std::numeric_limits<uint32_t>::max());
  place_ = {.epoch = place_.epoch + 1, .shuffling = PresentShuffling(), .texts = next_texts_};
  SetQuotas(place_);
  entered_ = false;
  Enter();
}

absl::Status SamplingOrder::CheckPlace(const DataPlace& place) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  const auto in_range = [](int64_t value, int64_t most) { return value >= 0 && value <= most; };
  const Fitting& fitting = FittingOf(place.shuffling.capacity);
  bool right = place.texts.size() == fitting.size() && in_range(place.epoch, kMost - 1);
  int64_t samples = 0, quotas = 0;
  for (size_t c = 0; right && c < fitting.size(); ++c) {
    const TextPlace& text = place.texts[c];
    samples += std::ssize(fitting[c]);
    quotas += text.quota;
    right = in_range(text.pass, kMost) && in_range(text.quota, fitting[c].empty() ? 0 : kMost) &&
            in_range(text.read, std::ssize(FittingOf(text.shuffling.capacity)[c]));
  }
  if (right && samples > 0 && quotas == samples && in_range(place.read, samples)) return absl::OkStatus();
  return DataLossError("the place in the training data (epoch ", place.epoch, ", sample ", place.read,
                       ") is none in this corpus of ", corpus_->size(), " samples");
}

absl::Status SamplingOrder::Continue(const DataPlace& place) {
  DataPlace from = place;
  if (from.texts.empty()) {
    from = {.shuffling = PresentShuffling()};
    from.texts.resize(FittingOf(options_.capacity).size(), {.shuffling = from.shuffling});
    SetQuotas(from);
  }
  HADAL_RETURN_IF_ERROR(CheckPlace(from));
  const auto batch = std::lower_bound(batch_begin_.begin(), batch_begin_.end(), from.read);
  entered_ = entered_ && from.epoch == place_.epoch && from.shuffling == place_.shuffling &&
             from.texts == place_.texts && batch != batch_begin_.end() && *batch == from.read;
  if (entered_) next_batch_ = static_cast<size_t>(batch - batch_begin_.begin());
  place_ = std::move(from);
  return absl::OkStatus();
}

void SamplingOrder::Skip(int64_t count) {
  HADAL_CHECK_GE(count, 0);
  Enter();
  for (; count > std::ssize(batch_rows_) - static_cast<int64_t>(next_batch_); EnterNextEpoch()) {
    count -= std::ssize(batch_rows_) - static_cast<int64_t>(next_batch_);
  }
  next_batch_ += static_cast<size_t>(count);
  place_.read = batch_begin_[next_batch_];
}

absl::Status SamplingOrder::Copy(size_t index, PackedBatch& batch) const {
  BatchRows used;
  for (int64_t i = batch_begin_[index]; i < batch_begin_[index + 1]; ++i) {
    const uint32_t number = order_[static_cast<size_t>(i)];
    const SampleView sample = corpus_->sample(number);
    const BatchRows rows = RowsOf(sample);
    const bool fits = FitsAlone(rows, options_.capacity);
    if (!fits && !AllFit()) continue;  // passed over
    used += rows;
    // Checked before the copy, so that a changed length cannot exhaust the memory.
    if (!fits || !Fits(used, options_.capacity)) return CorpusChanged(*corpus_, number);
    AppendSentence(sample, number, batch);
  }
  const bool right = !batch.samples.empty() && used.source == batch_rows_[index].source &&
                     used.target == batch_rows_[index].target &&
                     AreIdsOf(corpus_->manifest(), batch.source, batch.target);
  return right ? absl::OkStatus() : CorpusChanged(*corpus_, order_[static_cast<size_t>(batch_begin_[index])]);
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

absl::Status SamplingOrder::Next(int64_t step, StepBatches& out) {
  const int32_t count = options_.micro_batches_per_step;
  out.micro_batches.resize(static_cast<size_t>(count));
  out.source_tokens = 0;
  out.target_tokens = 0;
  Enter();
  for (int32_t m = 0; m < count; ++m) {
    PackedBatch& batch = out.micro_batches[static_cast<size_t>(m)];
    ClearBatch(batch);
    batch.micro_batch = m;
    while (next_batch_ == batch_rows_.size()) EnterNextEpoch();
    HADAL_RETURN_IF_ERROR(Copy(next_batch_, batch));
    Augment(step, batch);
    if (options_.masking) MaskTokens(*options_.masking, options_.seed, static_cast<uint32_t>(place_.epoch), batch);
    out.source_tokens += batch.source_rows();
    out.target_tokens += batch.target_rows();
    ++next_batch_;
  }
  place_.read = batch_begin_[next_batch_];
  out.epochs_done =
      static_cast<double>(place_.epoch) + static_cast<double>(place_.read) / static_cast<double>(order_.size());
  return corpus_->CheckUnchanged();  // after the copy: what was copied came from the verified files
}

std::vector<int64_t> SamplingQuotas(const std::vector<int64_t>& samples, double temperature) {
  const int64_t all = std::accumulate(samples.begin(), samples.end(), int64_t{0});
  const int64_t most = *std::max_element(samples.begin(), samples.end());
  std::vector<double> shares;
  double sum = 0;
  for (const int64_t n : samples) {  // relative to the largest, which keeps powers finite
    shares.push_back(n == 0 ? 0 : Pow(static_cast<double>(n) / static_cast<double>(most), 1 / temperature));
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
                                                        int64_t max_sentences,
                                                        const std::optional<TokenMasking>& masking) {
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
  }
  for (PackedBatch& batch : out.batches) {
    if (!AreIdsOf(corpus.manifest(), batch.source, batch.target)) return CorpusChanged(corpus, batch.samples.front());
    if (masking) MaskTokens(*masking, /*seed=*/0, /*epoch=*/0, batch);
    out.target_tokens += batch.target_rows();
  }
  HADAL_RETURN_IF_ERROR(corpus.CheckUnchanged());  // after the copy: what was copied came from the verified files
  return out;
}

}  // namespace hadal
