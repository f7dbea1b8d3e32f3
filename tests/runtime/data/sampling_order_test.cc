#include "runtime/data/sampling_order.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/corpus.h"
#include "runtime/random.h"
#include "tests/support/corpus_of.h"
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
  int64_t step = 0;
  for (int epoch = 1; epoch <= 3; ++epoch) {
    std::vector<int64_t> seen;
    for (double done = epoch - 1; done < epoch; ++step) {
      const StepBatches batches = order.At(step);
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

TEST(SamplingOrderTest, SeekingEqualsGoingForward) {
  const Corpus corpus = MakeCorpus(40);
  SamplingOrder forward = MakeOrder(corpus, 3, 3);
  std::vector<StepBatches> steps;
  for (int64_t step = 0; step < 30; ++step) steps.push_back(forward.At(step));
  EXPECT_GT(steps.back().epochs_done, 5);
  for (const int64_t step : {29, 0, 17, 16, 3, 28}) {
    SamplingOrder fresh = MakeOrder(corpus, 3, 3);
    ExpectEqual(fresh.At(step), steps[static_cast<size_t>(step)]);
    ExpectEqual(forward.At(step), steps[static_cast<size_t>(step)]);  // also backward, with what it has seen
  }
}

TEST(SamplingOrderTest, AnOrderThatIsToldItsEpochEntersNoneBefore) {
  const Corpus corpus = MakeCorpus(40);
  SamplingOrder forward = MakeOrder(corpus, 3, 3);
  int64_t step = 0;
  while (forward.At(step).epochs_done < 300) ++step;
  EXPECT_GE(forward.epochs_entered(), 300);
  const EpochPosition start = forward.current_epoch();
  SamplingOrder resumed = MakeOrder(corpus, 3, 3);
  ASSERT_TRUE(resumed.Continue(start));
  ExpectEqual(resumed.At(step + 1), forward.At(step + 1));
  EXPECT_LE(resumed.epochs_entered(), 2);     // its own, and the next where the step lies on the border
  ExpectEqual(resumed.At(2), forward.At(2));  // also far back
  // A step of another number of micro-batches is another place of the same stream.
  SamplingOrder other_steps = MakeOrder(corpus, 3, 1);
  ASSERT_TRUE(other_steps.Continue(start));
  EXPECT_EQ(other_steps.At(3 * step + 2).micro_batches[0].samples, forward.At(step).micro_batches[2].samples);
  EXPECT_LE(other_steps.epochs_entered(), 2);
}

TEST(SamplingOrderTest, AnEpochOfAnotherOrderIsPassedOver) {
  const Corpus corpus = MakeCorpus(40), longer = MakeCorpus(41);
  SamplingOrder order = MakeOrder(corpus, 3, 3);
  order.At(100);
  const EpochPosition start = order.current_epoch();
  ASSERT_GT(start.epoch, 5);
  std::vector<Sample> of_other_lengths;
  for (int64_t i = 0; i < 40; ++i) {
    const SampleView sample = corpus.sample(i);
    of_other_lengths.push_back({.source = {sample.source.begin(), sample.source.end()},
                                .target = {sample.target.begin(), sample.target.end()}});
  }
  of_other_lengths.back().target.push_back(4);
  const Corpus of_equal_size = CorpusOf(of_other_lengths, 44, 44);
  SamplingOrder others[] = {MakeOrder(longer, 3, 3),
                            MakeOrder(corpus, 4, 3),
                            MakeOrder(corpus, 3, 3, {24, 21}),
                            MakeOrder(corpus, 3, 3, {25, 20}),
                            MakeOrder(corpus, 3, 3, {24, 20, 10}),
                            MakeOrder(of_equal_size, 3, 3)};
  for (SamplingOrder& other : others) EXPECT_FALSE(other.Continue(start));
  SamplingOrder same = MakeOrder(corpus, 3, 3);
  for (const EpochPosition& impossible : {EpochPosition{start.order, -1, 0}, {start.order, 3, 2}}) {
    EXPECT_FALSE(same.Continue(impossible)) << "an epoch is a micro-batch at least";
  }
  EXPECT_TRUE(same.Continue(start));
  SamplingOrder fresh = MakeOrder(corpus, 4, 3);
  ExpectEqual(others[1].At(50), fresh.At(50));
  SamplingOrder unknowing = MakeOrder(corpus, 3, 3);
  EXPECT_FALSE(unknowing.Continue(EpochPosition()));
}

// Longer than what is asked for ahead of its use, and not a multiple of it.
TEST(SamplingOrderTest, TheShuffleIsFisherAndYatess) {
  const Corpus corpus = MakeCorpus(333);
  SamplingOrder order = MakeOrder(corpus, 7, 1, {10000, 10000});  // one micro-batch is an epoch
  std::vector<int64_t> expected(333);
  std::iota(expected.begin(), expected.end(), 0);
  for (uint64_t i = 332; i > 0; --i) {
    const RandomCounter counter = {.seed = 7, .micro_batch = 1, .site = RandomSite::kSampling};
    const std::array<uint32_t, 4> words = Philox4x32(7, counter.At(static_cast<uint32_t>(i / 2)));
    const uint64_t draw = static_cast<uint64_t>(words[i % 2 * 2 + 1]) << 32 | words[i % 2 * 2];
    const auto partner = static_cast<uint64_t>((static_cast<unsigned __int128>(draw) * (i + 1)) >> 64);
    std::swap(expected[i], expected[partner]);
  }
  EXPECT_EQ(SamplesOf(order.At(1)), expected);
}

TEST(SamplingOrderTest, MemoryThatIsUsedAgainHoldsOneStepOnly) {
  const Corpus corpus = MakeCorpus(40);
  SamplingOrder order = MakeOrder(corpus, 3, 3);
  StepBatches reused;
  for (const int64_t step : {0, 1, 7, 2}) {
    ASSERT_TRUE(order.At(step, reused).ok());
    const StepBatches fresh = order.At(step);
    ExpectEqual(reused, fresh);
    EXPECT_EQ(reused.source_tokens, fresh.source_tokens);
  }
}

TEST(SamplingOrderTest, BatchesAreGreedyAndWithinCapacity) {
  const Corpus corpus = MakeCorpus(60);
  const BatchCapacity capacity = {24, 20};
  SamplingOrder order = MakeOrder(corpus, 9, 1, capacity);
  for (int64_t step = 0; step < 30; ++step) {
    const StepBatches now = order.At(step);
    const PackedBatch& batch = now.micro_batches[0];
    EXPECT_LE(batch.source_rows(), capacity.source_rows);
    EXPECT_LE(batch.target_rows(), capacity.target_rows);
    const StepBatches next = order.At(step + 1);
    if (std::floor(next.epochs_done) != std::floor(now.epochs_done) || now.epochs_done == std::floor(now.epochs_done)) {
      continue;  // the next batch may belong to the next epoch
    }
    const BatchRows first = RowsOf(corpus.sample(next.micro_batches[0].samples[0]));
    EXPECT_FALSE(Fits(BatchRows{batch.source_rows(), batch.target_rows()} + first, capacity)) << step;
  }
}

TEST(SamplingOrderTest, AStepIsConsecutiveMicroBatchesOfTheStream) {
  const Corpus corpus = MakeCorpus(40);
  SamplingOrder one = MakeOrder(corpus, 5, 1);
  SamplingOrder four = MakeOrder(corpus, 5, 4);
  for (int64_t step = 0; step < 12; ++step) {
    const StepBatches batches = four.At(step);
    ASSERT_EQ(batches.micro_batches.size(), 4u);
    int64_t source_rows = 0, target_rows = 0;
    for (int32_t m = 0; m < 4; ++m) {
      const PackedBatch& batch = batches.micro_batches[static_cast<size_t>(m)];
      EXPECT_EQ(batch.micro_batch, m);
      EXPECT_EQ(batch.samples, one.At(step * 4 + m).micro_batches[0].samples);
      source_rows += batch.source_rows();
      target_rows += batch.target_rows();
    }
    EXPECT_EQ(batches.source_tokens, source_rows);
    EXPECT_EQ(batches.target_tokens, target_rows);
  }
}

TEST(SamplingOrderTest, AStepMaySpanSeveralEpochs) {
  const Corpus corpus = MakeCorpus(3);
  SamplingOrder order = MakeOrder(corpus, 5, 8);
  std::map<int64_t, int> times;
  for (const int64_t sample : SamplesOf(order.At(0))) ++times[sample];
  EXPECT_EQ(times.size(), 3u);
  EXPECT_GT(order.At(0).epochs_done, 2);
}

// By the micro-batch's source rows, and by the limit of a sentence, which is for both sides.
TEST(SamplingOrderTest, TooLongSamplesAreCountedAndNeverTrainedOn) {
  const Corpus corpus = MakeCorpus(45);  // each length five times a side
  for (const BatchCapacity& capacity : {BatchCapacity{6, 100}, {100, 100, 6}}) {
    SamplingOrder order = MakeOrder(corpus, 1, 1, capacity);
    EXPECT_EQ(order.too_long(), capacity.source_rows == 6 ? 20 : 30);
    EXPECT_EQ(order.too_long() + order.samples(), 45);
    for (int64_t step = 0; step < 60; ++step) {
      for (const int64_t sample : SamplesOf(order.At(step))) {
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

// From epoch to epoch, also where the temperature changes, the passes over each of the corpora go on where they were.
TEST(SamplingOrderTest, EpochsTakeTheirQuotasFromWholePasses) {
  const std::vector<int32_t> sizes = {60, 20, 3};
  const Corpus corpus = MakeCorpora(sizes);
  const std::vector<double> temperatures = {1, 2, 5};
  SamplingOrder order = EpochsOf(corpus, temperatures);
  std::vector<std::vector<int32_t>> taken(3);
  for (size_t epoch = 0; epoch < 8; ++epoch) {
    const StepBatches batches = order.At(static_cast<int64_t>(epoch));
    EXPECT_EQ(batches.epochs_done, static_cast<double>(epoch) + 1);
    const std::vector<int64_t> quotas = SamplingQuotas({60, 20, 3}, temperatures[std::min<size_t>(epoch, 2)]);
    for (int32_t c = 0; c < 3; ++c) {
      const std::vector<int32_t> now = TakenOf(batches, c);
      EXPECT_EQ(static_cast<int64_t>(now.size()), quotas[static_cast<size_t>(c)]) << c << " in epoch " << epoch;
      taken[static_cast<size_t>(c)].insert(taken[static_cast<size_t>(c)].end(), now.begin(), now.end());
    }
  }
  for (size_t c = 0; c < 3; ++c) {
    const auto size = static_cast<size_t>(sizes[c]);
    std::vector<int32_t> before;
    ASSERT_GE(taken[c].size(), 2 * size) << c;
    for (size_t pass = 0; (pass + 1) * size <= taken[c].size(); ++pass) {
      std::vector<int32_t> all(taken[c].begin() + static_cast<ptrdiff_t>(pass * size),
                               taken[c].begin() + static_cast<ptrdiff_t>((pass + 1) * size));
      EXPECT_TRUE(size == 3 || all != before) << "pass " << pass << " of " << c;
      before = all;
      std::sort(all.begin(), all.end());
      for (int32_t i = 0; i < sizes[c]; ++i)
        EXPECT_EQ(all[static_cast<size_t>(i)], i) << "pass " << pass << " of " << c;
    }
  }
}

TEST(SamplingOrderTest, MoreCorporaChangeSharesButNoOrder) {
  const Corpus two = MakeCorpora({60, 20}), three = MakeCorpora({60, 20, 17});
  SamplingOrder of_two = EpochsOf(two, {5}), of_three = EpochsOf(three, {5});
  const StepBatches a = of_two.At(0), b = of_three.At(0);
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
  EXPECT_NE(corpora_of(of_two.At(1)), mixed) << "each epoch mixes them anew";
}

TEST(SamplingOrderTest, SeekingKnowsEveryEpochsTemperature) {
  const Corpus corpus = MakeCorpora({60, 20, 3});
  SamplingOrder forward = EpochsOf(corpus, {1, 3, 5});
  std::vector<StepBatches> epochs;
  for (int64_t epoch = 0; epoch < 6; ++epoch) epochs.push_back(forward.At(epoch));
  SamplingOrder resumed = EpochsOf(corpus, {1, 3, 5});
  ASSERT_TRUE(resumed.Continue(forward.current_epoch()));
  ExpectEqual(resumed.At(5), epochs[5]);
  EXPECT_EQ(resumed.epochs_entered(), 1);
  const Corpus others = MakeCorpora({60, 3, 20});  // the same samples of other corpora
  EXPECT_FALSE(EpochsOf(others, {1, 3, 5}).Continue(forward.current_epoch()));
  const TemporaryDirectory directory;  // of the same samples of corpora with other names
  CorpusWriter writer = *CorpusWriter::Create({.prefix = directory / "corpus",
                                               .source_vocabulary = corpus.manifest().source_vocabulary,
                                               .target_vocabulary = corpus.manifest().target_vocabulary,
                                               .corpora = {"en-de", "en-fr", "en-fi"}});
  for (int64_t i = 0; i < corpus.size(); ++i) ASSERT_TRUE(writer.Add(corpus.sample(i)).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const Corpus renamed = *Corpus::Open(directory / "corpus");
  EXPECT_FALSE(EpochsOf(renamed, {1, 3, 5}).Continue(forward.current_epoch()));
  EXPECT_NE(TakenOf(EpochsOf(renamed, {1}).At(0), 0), TakenOf(EpochsOf(corpus, {1}).At(0), 0));
  SamplingOrder other = EpochsOf(corpus, {1, 3});
  EXPECT_FALSE(other.Continue(forward.current_epoch()));
}

TEST(SamplingOrderTest, ATemperatureIsAboveZero) {
  const Corpus corpus = MakeCorpus(3);
  for (const double wrong : {0.0, -1.0, std::nan("")}) {
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
  with.At(0);
  for (const int64_t step : {7, 2}) {
    StepBatches expected = without.At(step);
    const StepBatches got = with.At(step);
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
  const ValidationBatches validation = *MakeValidationBatches(corpus, plain.capacity, 0);
  for (const PackedBatch& batch : validation.batches) {
    EXPECT_EQ(std::count(batch.frames.begin(), batch.frames.end(), 0.0f), 0) << "only training masks";
  }
}

TEST(SamplingOrderTest, TextHasNoFramesToMask) {
  const Corpus corpus = MakeCorpus(5);
  const SamplingOptions options = {.capacity = {24, 20}, .spec_augment = {.time_masks = 1, .time_width = 3}};
  EXPECT_THAT(std::string(SamplingOrder::Create(corpus, options).status().message()),
              HasSubstr("data.spec_augment masks the features of speech"));
}

}  // namespace
}  // namespace hadal
