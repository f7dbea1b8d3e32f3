#include "runtime/data/sampling_order.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/crc32c.h"
#include "runtime/data/corpus.h"
#include "runtime/random.h"
#include "tests/support/corpus_of.h"
#include "tests/support/step_batches.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

// Lengths 1 … 9, each sample recognisable.
Corpus MakeCorpus(int32_t count) {
  std::vector<Sample> samples;
  for (int32_t i = 0; i < count; ++i) {
    const auto source = static_cast<size_t>(1 + i * 7 % 9);
    const auto target = static_cast<size_t>(1 + i * 5 % 9);
    samples.push_back({.source = std::vector<int32_t>(source, 4 + i), .target = std::vector<int32_t>(target, 4 + i)});
  }
  return CorpusOf(samples, 4 + count, 4 + count);
}

SamplingOrder MakeOrder(const Corpus& corpus, uint64_t seed, int32_t micro_batches, BatchCapacity capacity = {24, 20}) {
  return *SamplingOrder::Create(corpus, {seed, capacity, micro_batches});
}

std::vector<int64_t> SamplesOf(const StepBatches& step) {
  std::vector<int64_t> samples;
  for (const PackedBatch& batch : step.micro_batches) {
    samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
  }
  return samples;
}

void ExpectEqual(const StepBatches& a, const StepBatches& b) {
  ASSERT_EQ(a.micro_batches.size(), b.micro_batches.size());
  for (size_t m = 0; m < a.micro_batches.size(); ++m) {
    EXPECT_EQ(a.micro_batches[m].micro_batch, b.micro_batches[m].micro_batch);
    EXPECT_EQ(a.micro_batches[m].samples, b.micro_batches[m].samples);
    EXPECT_EQ(a.micro_batches[m].source, b.micro_batches[m].source);
    EXPECT_EQ(a.micro_batches[m].target, b.micro_batches[m].target);
    EXPECT_EQ(a.micro_batches[m].target_input, b.micro_batches[m].target_input);
  }
  EXPECT_EQ(a.target_tokens, b.target_tokens);
  EXPECT_EQ(a.epochs_done, b.epochs_done);
}

TEST(SamplingOrderTest, EverySampleExactlyOnceAnEpoch) {
  const Corpus corpus = MakeCorpus(101);
  SamplingOrder order = MakeOrder(corpus, 3, 1);
  for (int epoch = 1; epoch <= 3; ++epoch) {
    std::vector<int64_t> seen;
    for (double done = epoch - 1; done < epoch;) {
      const StepBatches batches = NextStep(order);
      const std::vector<int64_t> samples = SamplesOf(batches);
      seen.insert(seen.end(), samples.begin(), samples.end());
      EXPECT_DOUBLE_EQ(batches.epochs_done, epoch - 1 + static_cast<double>(seen.size()) / 101);
      done = batches.epochs_done;
    }
    std::sort(seen.begin(), seen.end());
    ASSERT_EQ(seen.size(), 101u);
    for (int64_t i = 0; i < 101; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
  }
}

TEST(SamplingOrderTest, SkippingAndContinuingEqualReading) {
  const Corpus corpus = MakeCorpus(40);
  SamplingOrder forward = MakeOrder(corpus, 3, 3);
  std::vector<StepBatches> steps;
  std::vector<DataPlace> places;
  for (int64_t step = 0; step < 30; ++step) {
    places.push_back(forward.place());
    steps.push_back(NextStep(forward));
  }
  EXPECT_GT(steps.back().epochs_done, 5);
  for (const size_t step : {29, 0, 17, 16, 3, 28}) {
    SamplingOrder skipped = MakeOrder(corpus, 3, 3), continued = MakeOrder(corpus, 3, 3);
    skipped.Skip(3 * static_cast<int64_t>(step));
    ExpectEqual(NextStep(skipped), steps[step]);
    ASSERT_TRUE(continued.Continue(places[step]).ok());
    EXPECT_EQ(continued.place(), places[step]);
    ExpectEqual(NextStep(continued), steps[step]);
    ASSERT_TRUE(forward.Continue(places[step]).ok());  // also back, with what it has seen
    ExpectEqual(NextStep(forward), steps[step]);
    EXPECT_EQ(skipped.place(), continued.place());
    EXPECT_EQ(forward.place(), continued.place());
  }
  ASSERT_TRUE(forward.Continue(DataPlace()).ok());
  ExpectEqual(NextStep(forward), steps[0]);
}

TEST(SamplingOrderTest, APlaceNeedsNoEarlierEpoch) {
  const Corpus corpus = MakeCorpus(40);
  SamplingOrder forward = MakeOrder(corpus, 3, 3);
  while (NextStep(forward).epochs_done < 300) continue;
  EXPECT_GE(forward.epochs_entered(), 300);
  SamplingOrder resumed = MakeOrder(corpus, 3, 3);
  ASSERT_TRUE(resumed.Continue(forward.place()).ok());
  const int64_t entered = forward.epochs_entered();
  ASSERT_TRUE(forward.Continue(forward.place()).ok());
  const StepBatches next = NextStep(forward);
  EXPECT_LE(forward.epochs_entered(), entered + 1) << "the present epoch's batches are there";
  ExpectEqual(NextStep(resumed), next);
  EXPECT_LE(resumed.epochs_entered(), 2);  // its own, and the next where the step lies on the border
}

TEST(SamplingOrderTest, ImpossiblePlacesAreRefused) {
  const Corpus corpus = MakeCorpus(40), longer = MakeCorpus(41);
  SamplingOrder order = MakeOrder(corpus, 3, 3);
  order.Skip(100);
  const DataPlace right = order.place();
  const auto expect_refused = [&](const std::function<void(DataPlace&)>& change) {
    DataPlace wrong = right;
    change(wrong);
    SamplingOrder same = MakeOrder(corpus, 3, 3);
    EXPECT_EQ(same.Continue(wrong).code(), absl::StatusCode::kDataLoss);
    ExpectEqual(NextStep(same), StepOf(MakeOrder(corpus, 3, 3), 0, 3));  // as if not asked
  };
  expect_refused([](DataPlace& place) { place.epoch = -1; });
  expect_refused([](DataPlace& place) { place.read = -1; });
  expect_refused([](DataPlace& place) { place.read = 41; });
  expect_refused([](DataPlace& place) { place.texts.emplace_back(); });
  expect_refused([](DataPlace& place) { place.texts[0].quota = 39; });
  expect_refused([](DataPlace& place) { place.texts[0].pass = -1; });
  expect_refused([](DataPlace& place) { place.texts[0].read = 41; });
  expect_refused([](DataPlace& place) { place.shuffling.capacity.source_rows = 5; });
  EXPECT_THAT(std::string(MakeOrder(longer, 3, 3).Continue(right).message()), HasSubstr("corpus of 41 samples"));
  const Corpus two = CorpusOf({{.corpus_id = 0, .target = {4}}, {.corpus_id = 1, .target = {4}}}, 0, 10);
  DataPlace of_empty = SamplingOrder::Create(two, {.capacity = {24, 20}})->place();
  of_empty.texts[0].quota = 3;
  of_empty.texts[1].quota = -1;
  EXPECT_FALSE(SamplingOrder::Create(two, {.capacity = {24, 20}})->Continue(of_empty).ok());
  const std::vector<int32_t> too_long(30, 4);
  const Corpus one_fits = CorpusOf({{.target = {4}}, {.target = {5}}, {.corpus_id = 1, .target = too_long}}, 0, 10);
  DataPlace of_none = SamplingOrder::Create(one_fits, {.capacity = {24, 20}})->place();
  of_none.texts[0].quota = of_none.texts[1].quota = 1;
  EXPECT_FALSE(SamplingOrder::Create(one_fits, {.capacity = {24, 20}})->Continue(of_none).ok());
}

// What a run reads, whose options change now and then where it resumes.
class ChangingRun {
 public:
  ChangingRun(const Corpus& corpus, SamplingOptions options) : corpus_(corpus), options_(std::move(options)) {
    order_.emplace(*SamplingOrder::Create(corpus_, options_));
  }
  void Resume(const SamplingOptions& options) {
    const DataPlace place = order_->place();
    options_ = options;
    order_.emplace(*SamplingOrder::Create(corpus_, options_));
    ASSERT_TRUE(order_->Continue(place).ok());
    EXPECT_EQ(order_->place(), place);
  }
  StepBatches Read() { return NextStep(*order_); }
  const SamplingOptions& options() const { return options_; }
  const DataPlace& place() const { return order_->place(); }

 private:
  const Corpus& corpus_;
  SamplingOptions options_;
  std::optional<SamplingOrder> order_;
};

// A step is consecutive micro-batches of the stream; another number of them is the same stream, cut in other steps: the
// bits of each micro-batch.
TEST(SamplingOrderTest, MicroBatchesMayChangeWithinAStream) {
  const Corpus corpus = MakeCorpus(40);
  SamplingOrder stream = MakeOrder(corpus, 3, 1);
  ChangingRun run(corpus, {.seed = 3, .capacity = {24, 20}, .micro_batches_per_step = 3});
  for (const int32_t micro_batches : {3, 1, 5, 2}) {
    run.Resume({.seed = 3, .capacity = {24, 20}, .micro_batches_per_step = micro_batches});
    for (int step = 0; step < 7; ++step) {
      const StepBatches batches = run.Read();
      ASSERT_EQ(std::ssize(batches.micro_batches), micro_batches);
      int64_t source_rows = 0, target_rows = 0;
      for (const PackedBatch& batch : batches.micro_batches) {
        EXPECT_EQ(batch.micro_batch, static_cast<int32_t>(&batch - batches.micro_batches.data()));
        EXPECT_EQ(batch.samples, NextStep(stream).micro_batches[0].samples);
        source_rows += batch.source_rows();
        target_rows += batch.target_rows();
      }
      EXPECT_EQ(batches.source_tokens, source_rows);
      EXPECT_EQ(batches.target_tokens, target_rows);
    }
  }
}

// Whatever changes where a run resumes, an epoch reads every sample once.
TEST(SamplingOrderTest, AnEpochIsExactWhateverChangesOnTheWay) {
  std::mt19937 random(7);
  const auto draw = [&](int32_t least, int32_t most) {
    return std::uniform_int_distribution<int32_t>(least, most)(random);
  };
  for (int trial = 0; trial < 60; ++trial) {
    const Corpus corpus = MakeCorpus(draw(5, 60));
    // Rows of a side: 2 to 10.
    const auto options = [&] {
      return SamplingOptions{.seed = static_cast<uint64_t>(draw(1, 3)),
                             .capacity = {draw(10, 40), draw(10, 40), draw(10, 12)},
                             .micro_batches_per_step = draw(1, 5)};
    };
    ChangingRun run(corpus, options());
    std::map<int64_t, int64_t> times;
    int64_t read = 0;
    while (read < 4 * corpus.size()) {
      for (const int64_t sample : SamplesOf(run.Read())) {
        const int64_t epoch = read / corpus.size();
        ASSERT_EQ(times[sample], epoch) << sample << " in trial " << trial;
        ++times[sample];
        ++read;
      }
      ASSERT_EQ(run.place().epoch * corpus.size() + run.place().read, read);
      if (draw(0, 2) == 0) run.Resume(options());
    }
  }
}

// Capacities that some samples exceed: an epoch reads once what fits all the time, and nothing that fits not when it is
// packed or did not when the epoch began.
TEST(SamplingOrderTest, SamplesThatFitOnlyAtTimesAreReadAtMostOnce) {
  std::mt19937 random(8);
  const auto draw = [&](int32_t least, int32_t most) {
    return std::uniform_int_distribution<int32_t>(least, most)(random);
  };
  for (int trial = 0; trial < 60; ++trial) {
    const Corpus corpus = MakeCorpus(draw(20, 60));
    const auto options = [&] {
      return SamplingOptions{.seed = static_cast<uint64_t>(draw(1, 3)), .capacity = {draw(4, 14), draw(4, 14)}};
    };
    ChangingRun run(corpus, options());
    std::vector<BatchCapacity> of_epoch = {run.options().capacity};  // the first is that of its beginning
    std::set<int64_t> read;
    for (int64_t epoch = 0; epoch < 5;) {
      const std::vector<int64_t> samples = SamplesOf(run.Read());
      if (run.place().epoch > epoch) {
        for (int64_t i = 0; i < corpus.size(); ++i) {
          const BatchRows rows = RowsOf(corpus.sample(i));
          const bool always =
              std::ranges::all_of(of_epoch, [&](const auto& capacity) { return FitsAlone(rows, capacity); });
          if (always) {
            EXPECT_TRUE(read.contains(i)) << i << " in epoch " << epoch << " of trial " << trial;
          }
          if (!FitsAlone(rows, of_epoch[0])) {
            EXPECT_FALSE(read.contains(i)) << i;
          }
        }
        epoch = run.place().epoch;
        of_epoch = {run.options().capacity};
        read.clear();
      }
      for (const int64_t sample : samples) {
        EXPECT_TRUE(read.insert(sample).second) << sample << " twice in epoch " << epoch << " of trial " << trial;
        EXPECT_TRUE(FitsAlone(RowsOf(corpus.sample(sample)), run.options().capacity));
      }
      if (draw(0, 4) > 0) continue;
      run.Resume(options());
      of_epoch.push_back(run.options().capacity);
    }
  }
}

// Longer than what is asked for ahead of its use, and not a multiple of it.
TEST(SamplingOrderTest, TheShuffleIsFisherAndYatess) {
  const Corpus corpus = MakeCorpus(333);
  const SamplingOrder order = MakeOrder(corpus, 7, 1, {10000, 10000});  // one micro-batch is an epoch
  std::vector<int64_t> expected(333);
  std::iota(expected.begin(), expected.end(), 0);
  for (uint64_t i = 332; i > 0; --i) {
    const RandomCounter counter = {.seed = 7, .micro_batch = 1, .site = RandomSite::kSampling};
    const std::array<uint32_t, 4> words = Philox4x32(7, counter.At(static_cast<uint32_t>(i / 2)));
    const uint64_t draw = static_cast<uint64_t>(words[i % 2 * 2 + 1]) << 32 | words[i % 2 * 2];
    const auto partner = static_cast<uint64_t>((static_cast<unsigned __int128>(draw) * (i + 1)) >> 64);
    std::swap(expected[i], expected[partner]);
  }
  EXPECT_EQ(SamplesOf(StepOf(order, 1, 1)), expected);
}

TEST(SamplingOrderTest, MemoryThatIsUsedAgainHoldsOneStepOnly) {
  const Corpus corpus = MakeCorpus(40);
  SamplingOrder order = MakeOrder(corpus, 3, 3);
  StepBatches reused;
  for (int64_t step = 0; step < 9; ++step) {
    ASSERT_TRUE(order.Next(step, reused).ok());
    const StepBatches fresh = StepOf(MakeOrder(corpus, 3, 3), step, 3);
    ExpectEqual(reused, fresh);
    EXPECT_EQ(reused.source_tokens, fresh.source_tokens);
  }
}

TEST(SamplingOrderTest, BatchesAreGreedyAndWithinCapacity) {
  const Corpus corpus = MakeCorpus(60);
  const BatchCapacity capacity = {24, 20};
  SamplingOrder order = MakeOrder(corpus, 9, 1, capacity);
  for (StepBatches now = NextStep(order), next; order.place().epoch < 3; now = std::move(next)) {
    const PackedBatch& batch = now.micro_batches[0];
    EXPECT_LE(batch.source_rows(), capacity.source_rows);
    EXPECT_LE(batch.target_rows(), capacity.target_rows);
    next = NextStep(order);
    if (std::floor(next.epochs_done) != std::floor(now.epochs_done) || now.epochs_done == std::floor(now.epochs_done)) {
      continue;  // the next batch may belong to the next epoch
    }
    const BatchRows first = RowsOf(corpus.sample(next.micro_batches[0].samples[0]));
    EXPECT_FALSE(Fits(BatchRows{batch.source_rows(), batch.target_rows()} + first, capacity)) << now.epochs_done;
  }
}

// By the micro-batch's source rows, and by the limit of a sentence, which is for both sides.
TEST(SamplingOrderTest, TooLongSamplesAreCountedAndNeverTrainedOn) {
  const Corpus corpus = MakeCorpus(45);  // each length five times a side
  for (const BatchCapacity& capacity : {BatchCapacity{6, 100}, {100, 100, 6}}) {
    SamplingOrder order = MakeOrder(corpus, 1, 1, capacity);
    EXPECT_EQ(order.too_long(), capacity.source_rows == 6 ? 20 : 30);
    EXPECT_EQ(order.too_long() + order.samples(), 45);
    for (int64_t step = 0; step < 60; ++step) {
      for (const int64_t sample : SamplesOf(NextStep(order))) {
        EXPECT_LE(corpus.sample(sample).source.size(), 5u);
        EXPECT_LE(corpus.sample(sample).target.size(), capacity.source_rows == 6 ? 9u : 5u);
      }
    }
    EXPECT_EQ(MakeValidationBatches(corpus, capacity, 0)->too_long, order.too_long());
  }
}

// Of several corpora, sizes[c] samples each; a sample's target is {4 + c, 4 + its number in c}.
Corpus MakeCorpora(const std::vector<int32_t>& sizes) {
  std::vector<Sample> samples;
  for (int32_t c = 0; c < static_cast<int32_t>(sizes.size()); ++c) {
    for (int32_t i = 0; i < sizes[static_cast<size_t>(c)]; ++i) {
      samples.push_back({.corpus_id = c, .source = {4}, .target = {4 + c, 4 + i}});
    }
  }
  return CorpusOf(samples, 100, 100);
}

// An order in which each step is an epoch.
SamplingOrder EpochsOf(const Corpus& corpus, std::vector<double> temperatures) {
  SamplingOptions options = {.seed = 5, .capacity = {3 * 2000, 3 * 2000}};
  options.temperatures = std::move(temperatures);
  return *SamplingOrder::Create(corpus, options);
}

// The samples of corpora c that an epoch takes, in their order, by their numbers in c.
std::vector<int32_t> TakenOf(const StepBatches& epoch, int32_t c) {
  const PackedBatch& batch = epoch.micro_batches[0];
  std::vector<int32_t> taken;
  for (size_t row = 0; row < batch.target.size(); row += 3) {
    if (batch.target[row] == 4 + c) taken.push_back(batch.target[row + 1] - 4);
  }
  return taken;
}

TEST(SamplingQuotasTest, FollowTheTemperature) {
  const std::vector<int64_t> samples = {158'000, 20'000, 1'000, 0, 1};
  EXPECT_EQ(SamplingQuotas(samples, 1), samples);
  for (const double temperature : {0.2, 1.5, 5.0, 1e6}) {
    double sum = 0;
    for (const int64_t n : samples) sum += n == 0 ? 0 : std::pow(static_cast<double>(n) / 179'001, 1 / temperature);
    const std::vector<int64_t> quotas = SamplingQuotas(samples, temperature);
    for (size_t c = 0; c < samples.size(); ++c) {
      const auto n = static_cast<double>(samples[c]);
      const double share = n == 0 ? 0 : std::pow(n / 179'001, 1 / temperature) / sum;
      EXPECT_NEAR(static_cast<double>(quotas[c]), 179'001 * share, 1) << c << " at " << temperature;
    }
    EXPECT_EQ(std::accumulate(quotas.begin(), quotas.end(), int64_t{0}), 179'001);
  }
}

// 4·√2 / (√2 + 2) = 1.66 and 4 / (√2 + 2) = 1.17, twice.
TEST(SamplingQuotasTest, WhatIsLeftGoesToTheLargestRemainders) {
  EXPECT_EQ(SamplingQuotas({2, 1, 1}, 2), (std::vector<int64_t>{2, 1, 1}));
  EXPECT_EQ(SamplingQuotas({1, 1, 2}, 2), (std::vector<int64_t>{1, 1, 2}));
}

// Of seed 5, by Fisher and Yates.
std::vector<int32_t> Shuffled(std::vector<int32_t> values, uint32_t name, uint32_t number) {
  const RandomCounter counter = {.seed = 5, .step = name, .micro_batch = number, .site = RandomSite::kSampling};
  for (uint64_t i = values.size() - 1; i > 0; --i) {
    const std::array<uint32_t, 4> words = Philox4x32(5, counter.At(static_cast<uint32_t>(i / 2)));
    const uint64_t draw = static_cast<uint64_t>(words[i % 2 * 2 + 1]) << 32 | words[i % 2 * 2];
    std::swap(values[i], values[static_cast<size_t>((static_cast<unsigned __int128>(draw) * (i + 1)) >> 64)]);
  }
  return values;
}

// Runs that are resumed by a later version read on in the same order.
TEST(SamplingOrderTest, CorporaAreShuffledByTheirNamesAndMergedByOne) {
  const Corpus corpus = MakeCorpora({60, 20});
  SamplingOrder order = EpochsOf(corpus, {1});
  const StepBatches epoch = NextStep(order);
  std::vector<int32_t> corpora(60, 4), found;
  corpora.resize(80, 5);
  const std::vector<int32_t>& target = epoch.micro_batches[0].target;
  for (size_t row = 0; row < target.size(); row += 3) found.push_back(target[row]);
  EXPECT_EQ(found, Shuffled(corpora, /*name=*/1, /*number=*/0));
  for (int32_t c = 0; c < 2; ++c) {
    const std::string& name = corpus.manifest().corpora[static_cast<size_t>(c)];
    std::vector<int32_t> numbers(c == 0 ? size_t{60} : size_t{20});
    std::iota(numbers.begin(), numbers.end(), 0);
    EXPECT_EQ(TakenOf(epoch, c), Shuffled(numbers, Crc32c(name.data(), name.size()), /*number=*/0)) << c;
  }
}

TEST(SamplingOrderTest, MoreCorporaChangeSharesButNoOrder) {
  const Corpus two = MakeCorpora({60, 20}), three = MakeCorpora({60, 20, 17});
  SamplingOrder of_two = EpochsOf(two, {5}), of_three = EpochsOf(three, {5});
  const StepBatches a = NextStep(of_two), b = NextStep(of_three);
  for (int32_t c = 0; c < 2; ++c) {
    std::vector<int32_t> longer = TakenOf(a, c), shorter = TakenOf(b, c);
    if (longer.size() < shorter.size()) std::swap(longer, shorter);
    ASSERT_LT(shorter.size(), longer.size());
    longer.resize(shorter.size());
    EXPECT_EQ(longer, shorter) << c;
  }
  const auto corpora_of = [](const StepBatches& epoch) {
    const std::vector<int32_t>& target = epoch.micro_batches[0].target;
    std::vector<int32_t> corpora;
    for (size_t row = 0; row < target.size(); row += 3) corpora.push_back(target[row]);
    return corpora;
  };
  const std::vector<int32_t> mixed = corpora_of(a);
  EXPECT_FALSE(std::is_sorted(mixed.begin(), mixed.end()));
  const StepBatches next = NextStep(of_two);
  EXPECT_NE(corpora_of(next), mixed) << "each epoch mixes them anew";
  EXPECT_NE(TakenOf(next, 0), TakenOf(a, 0)) << "each pass is shuffled anew";
}

TEST(SamplingOrderTest, APlaceKnowsEveryTextsPass) {
  const Corpus corpus = MakeCorpora({60, 20, 3});
  SamplingOrder forward = EpochsOf(corpus, {1, 3, 5});
  std::vector<StepBatches> epochs;
  for (int64_t epoch = 0; epoch < 6; ++epoch) {
    SamplingOrder resumed = EpochsOf(corpus, {1, 3, 5});
    ASSERT_TRUE(resumed.Continue(forward.place()).ok());
    epochs.push_back(NextStep(forward));
    ExpectEqual(NextStep(resumed), epochs.back());
    EXPECT_LE(resumed.epochs_entered(), 2);  // at most that which is over
  }
  const TemporaryDirectory directory;  // the same samples of corpora with other names
  CorpusWriter writer = *CorpusWriter::Create({.prefix = directory / "corpus",
                                               .source_vocabulary = corpus.manifest().source_vocabulary,
                                               .target_vocabulary = corpus.manifest().target_vocabulary,
                                               .corpora = {"en-de", "en-fr", "en-fi"}});
  for (int64_t i = 0; i < corpus.size(); ++i) ASSERT_TRUE(writer.Add(corpus.sample(i)).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const Corpus renamed = *Corpus::Open(directory / "corpus");
  EXPECT_NE(IdentityOf(renamed.manifest()), IdentityOf(corpus.manifest()));
  EXPECT_NE(TakenOf(StepOf(EpochsOf(renamed, {1}), 0, 1), 0), TakenOf(StepOf(EpochsOf(corpus, {1}), 0, 1), 0));
}

// Seeds, batches and temperatures change within epochs and passes; each text's passes are read to their ends, and an
// epoch keeps the quotas of its beginning.
TEST(SamplingOrderTest, PassesAndQuotasAreExactWhateverChangesOnTheWay) {
  std::mt19937 random(9);
  const auto draw = [&](int32_t least, int32_t most) {
    return std::uniform_int_distribution<int32_t>(least, most)(random);
  };
  for (int trial = 0; trial < 60; ++trial) {
    const std::vector<int64_t> sizes = {draw(20, 40), draw(5, 20), draw(1, 4)};
    const Corpus corpus = MakeCorpora({sizes.begin(), sizes.end()});
    const bool one_by_one = trial % 2 == 0;  // a step is then of one epoch, and quotas can be compared
    const auto options = [&] {
      return SamplingOptions{.seed = static_cast<uint64_t>(draw(1, 3)),
                             .capacity = {draw(2, 20), draw(3, 20)},
                             .micro_batches_per_step = one_by_one ? 1 : draw(2, 5),
                             .temperatures = {static_cast<double>(draw(1, 5)), static_cast<double>(draw(1, 5))}};
    };
    ChangingRun run(corpus, options());
    std::vector<std::map<int32_t, int64_t>> times(3);
    std::vector<int64_t> read(3), of_epoch(3), quotas = SamplingQuotas(sizes, run.options().temperatures[0]);
    for (int64_t epoch = 0; epoch < 5;) {
      const StepBatches step = run.Read();
      if (run.place().epoch > epoch) {
        if (one_by_one) {
          EXPECT_EQ(of_epoch, quotas) << "epoch " << epoch << " of trial " << trial;
        }
        epoch = run.place().epoch;
        of_epoch.assign(3, 0);
        quotas = SamplingQuotas(sizes, run.options().temperatures[1]);
      }
      for (const PackedBatch& batch : step.micro_batches) {
        for (size_t row = 0; row < batch.target.size(); row += 3) {
          const auto c = static_cast<size_t>(batch.target[row] - 4);
          const int32_t sample = batch.target[row + 1];
          ASSERT_EQ(times[c][sample], read[c] / sizes[c]) << sample << " of " << c << " in trial " << trial;
          ++times[c][sample];
          ++read[c];
          ++of_epoch[c];
        }
      }
      if (draw(0, 2) == 0) run.Resume(options());
    }
  }
}

TEST(SamplingOrderTest, ATemperatureIsAboveZero) {
  const Corpus corpus = MakeCorpus(3);
  for (const double wrong : {0.0, -1.0, 1e-4, double{INFINITY}, std::nan("")}) {
    SamplingOptions options = {.capacity = {24, 20}, .temperatures = {1, wrong}};
    EXPECT_THAT(SamplingOrder::Create(corpus, options).status().message(), HasSubstr("a sampling temperature of"));
  }
}

TEST(SamplingOrderTest, ErrorsSayWhatWouldFit) {
  const Corpus corpus = MakeCorpus(9);
  EXPECT_EQ(SamplingOrder::Create(corpus, {1, {1, 1}, 1}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto advice = [&](const BatchCapacity& capacity) {
    const std::string text(SamplingOrder::Create(corpus, {1, capacity, 1}).status().message());
    return text.substr(std::min(text.size(), text.find("counted): ") + 10));
  };
  EXPECT_EQ(advice({1, 1}), "raise the capacities (batch.source_tokens, batch.target_tokens)");
  EXPECT_EQ(advice({100, 100, 1}), "raise the model's positions (model.max_positions)");
  EXPECT_EQ(advice({1, 1, 1}),
            "raise the capacities (batch.source_tokens, batch.target_tokens) and the model's positions "
            "(model.max_positions)");
  const Corpus short_ones_behind = CorpusOf({{.source = {4, 4, 4}, .target = {4, 4}},
                                             {.source = {4}, .target = {4, 4}},
                                             {.source = {4, 4}, .target = {4, 4}}},
                                            10, 10);
  EXPECT_THAT(std::string(SamplingOrder::Create(short_ones_behind, {1, {1, 1}, 1}).status().message()),
              HasSubstr("none of the corpus's 3 samples fits a micro-batch of 1 source and 1 target rows; the shortest "
                        "takes 2 and 3"));
  EXPECT_THAT(std::string(SamplingOrder::Create(corpus, {1, {100, 100, 1}, 1}).status().message()),
              HasSubstr("at most 1 of one sentence"));
  EXPECT_FALSE(SamplingOrder::Create(corpus, {1, {100, 100}, 0}).ok());
  const Corpus empty = CorpusOf({}, 10, 10);
  EXPECT_THAT(std::string(SamplingOrder::Create(empty, {1, {9, 9}, 1}).status().message()), HasSubstr("no samples"));
}

TEST(ValidationBatchesTest, CorpusOrderWithoutTheTooLong) {
  const Corpus corpus = MakeCorpus(45);
  const ValidationBatches all = *MakeValidationBatches(corpus, {6, 30}, 0);
  EXPECT_EQ(all.too_long, 20);
  std::vector<int64_t> samples;
  int64_t target_rows = 0;
  for (const PackedBatch& batch : all.batches) {
    EXPECT_LE(batch.source_rows(), 6);
    EXPECT_EQ(batch.micro_batch, static_cast<int32_t>(&batch - all.batches.data()));
    samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
    target_rows += batch.target_rows();
  }
  EXPECT_EQ(samples.size(), 25u);
  EXPECT_TRUE(std::is_sorted(samples.begin(), samples.end()));
  EXPECT_EQ(all.target_tokens, target_rows);

  const ValidationBatches some = *MakeValidationBatches(corpus, {6, 30}, 7);
  int64_t sentences = 0;
  for (const PackedBatch& batch : some.batches) sentences += batch.sentences();
  EXPECT_EQ(sentences, 7);
  EXPECT_FALSE(MakeValidationBatches(corpus, {1, 1}, 0).ok());
}

TEST(ValidationBatchesTest, TheFirstSentencesOfEachDirection) {
  std::vector<Sample> sentences;
  for (int32_t i = 0; i < 12; ++i) sentences.push_back({.corpus_id = i / 6, .source = {4}, .target = {4}});
  const ValidationBatches some = *MakeValidationBatches(CorpusOf(sentences, 10, 10), {6, 30}, 2);
  std::vector<int64_t> samples;
  for (const PackedBatch& batch : some.batches) {
    samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
  }
  EXPECT_EQ(samples, (std::vector<int64_t>{0, 1, 6, 7}));
  EXPECT_EQ(some.corpus_ids, (std::vector<int32_t>{0, 1}));
}

// Utterance i has 4·(1 + i % 5) frames of 3 values, all i + 1.
Corpus MakeSpeech(int32_t count) {
  std::vector<Sample> samples;
  for (int32_t i = 0; i < count; ++i) {
    const auto frames = static_cast<size_t>(4 * (1 + i % 5));
    samples.push_back(
        {.target = {4 + i}, .frames = std::vector<float>(3 * frames, static_cast<float>(i + 1)), .frame_width = 3});
  }
  return CorpusOf(samples, 0, 4 + count);
}

// The masks depend on seed, step, micro-batch and place alone, whatever was read before.
TEST(SamplingOrderTest, FramesAreMaskedByTheirPlaceInTraining) {
  const Corpus corpus = MakeSpeech(40);
  const SpecAugment policy = {.frequency_masks = 1, .frequency_width = 2, .time_masks = 1, .time_width = 6};
  const SamplingOptions plain = {.seed = 5, .capacity = {12, 20}, .micro_batches_per_step = 3};
  SamplingOptions masked = plain;
  masked.spec_augment = policy;
  SamplingOrder without = *SamplingOrder::Create(corpus, plain), with = *SamplingOrder::Create(corpus, masked);
  for (int64_t step = 0; step < 8; ++step) {
    StepBatches expected = NextStep(without, step);
    const StepBatches got = NextStep(with, step);
    ExpectEqual(expected, got);
    for (PackedBatch& batch : expected.micro_batches) {
      for (size_t s = 0; s < batch.samples.size(); ++s) {
        const auto begin = static_cast<size_t>(3 * batch.frame_offsets[s]);
        const auto end = static_cast<size_t>(3 * batch.frame_offsets[s + 1]);
        ApplySpecAugment(policy,
                         {.seed = 5,
                          .step = static_cast<uint32_t>(step),
                          .micro_batch = static_cast<uint32_t>(batch.micro_batch),
                          .sentence = static_cast<uint32_t>(s)},
                         3, std::span(batch.frames).subspan(begin, end - begin));
      }
      EXPECT_EQ(got.micro_batches[static_cast<size_t>(batch.micro_batch)].frames, batch.frames);
    }
  }
}

// By the run's seed and by the epoch; in validation always alike.
TEST(SamplingOrderTest, TokensAreMaskedAnewInEachEpoch) {
  std::vector<Sample> lines;
  for (int32_t i = 0; i < 12; ++i) lines.push_back({.target = std::vector<int32_t>(8, 4 + i)});
  const Corpus corpus = CorpusOf(lines, 0, 20);
  const TokenMasking masking = {.share = 0.5, .mask_token = 19, .vocabulary = 20, .special = {0, 1, 2, 3, 19}};
  const SamplingOptions plain = {.seed = 5, .capacity = {0, 20}};
  SamplingOptions masked = plain;
  masked.masking = masking;
  SamplingOrder without = *SamplingOrder::Create(corpus, plain), with = *SamplingOrder::Create(corpus, masked);
  const auto expect_masked = [&](uint64_t seed, uint32_t epoch, PackedBatch batch, const PackedBatch& found) {
    MaskTokens(masking, seed, epoch, batch);
    EXPECT_EQ(found.source, batch.source);
    EXPECT_EQ(found.target_input, batch.target_input);
  };
  while (without.place().epoch < 2) {
    const StepBatches batches = NextStep(without);
    expect_masked(5, static_cast<uint32_t>(without.place().epoch), batches.micro_batches[0],
                  NextStep(with).micro_batches[0]);
  }
  expect_masked(0, 0, MakeValidationBatches(corpus, plain.capacity, 0)->batches[0],
                MakeValidationBatches(corpus, plain.capacity, 0, masking)->batches[0]);
}

TEST(SamplingOrderTest, TextHasNoFramesToMask) {
  const Corpus corpus = MakeCorpus(5);
  const SamplingOptions options = {.capacity = {24, 20}, .spec_augment = {.time_masks = 1, .time_width = 3}};
  EXPECT_THAT(std::string(SamplingOrder::Create(corpus, options).status().message()),
              HasSubstr("data.spec_augment masks the features of speech"));
}

}  // namespace
}  // namespace hadal
