// The search's side of a lane: cache rows are never shared by mistake, and sentences that do not fit come back
// unharmed.
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "layers/method_presets.h"
#include "pipeline/decode/decode_buffers.h"
#include "pipeline/decode/decode_driver.h"
#include "pipeline/decode/decode_links.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/random.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

constexpr int32_t kVocabulary = 12;
constexpr int32_t kCandidates = 11;

// A stand-in for the model, run on the tables that a rank would use: every cache row holds what was written into it,
// and the answer is a function of the sources and tokens that a row sees through its index.
class FakeRank {
 public:
  explicit FakeRank(const DecodeCapacity& capacity)
      : lane_(capacity, /*on_device=*/false), cache_(capacity.cache_rows) {}

  void Execute(const DecodeCommand& command) {
    if (command.kind == DecodeCommand::Kind::kEncode) {
      lane_.BeginGroup(command, {}, 0);
      const ConstTokens source_rows = lane_.encoder_output().rows;
      for (int64_t r = 0; r < source_rows.size; ++r) cache_.at(source_rows[r]) = 1000 + lane_.batch().source[r];
      return;
    }
    lane_.BeginStep(command);
    const IncrementalRows& rows = lane_.rows();
    tokens_.assign(rows.rows() * kCandidates, -1);
    log_probabilities_.assign(rows.rows() * kCandidates, NAN);
    end_.assign(rows.rows(), NAN);
    for (int64_t i = 0; i < rows.rows(); ++i) cache_.at(rows.cache_rows.rows[i]) = rows.tokens[i];
    for (size_t i = 0; i < command.rows.size(); ++i) Answer(static_cast<int64_t>(i));
  }

  CandidateTable table() const {
    const auto rows = static_cast<int64_t>(end_.size());
    return {{tokens_.data(), rows, kCandidates}, {log_probabilities_.data(), rows, kCandidates}, {end_.data(), rows}};
  }

 private:
  uint64_t See(const CacheIndex& index, int64_t row, uint64_t key) const {
    for (int32_t p = 0; p < index.lengths[row]; ++p) {
      key = key * 1000003 + static_cast<uint64_t>(cache_.at(index.indices[row * index.stride + p]));
    }
    return key;
  }

  void Answer(int64_t row) {
    const uint64_t key = See(lane_.rows().self, row, See(lane_.rows().encoder_output, row, 17));
    std::vector<std::pair<float, int32_t>> z;
    for (int32_t v = 0; v < kVocabulary; ++v) {
      z.push_back({static_cast<float>(-5 * UniformAt(key, RandomSite::kSampling, 3, v) - (v == kEosToken ? 1 : 0)), v});
    }
    end_[row] = z[kEosToken].first;
    std::sort(z.rbegin(), z.rend());
    for (int32_t k = 0; k < kCandidates; ++k) {
      tokens_[row * kCandidates + k] = z[k].second;
      log_probabilities_[row * kCandidates + k] = z[k].first;
    }
  }

  DecodeLane lane_;
  std::vector<int32_t> cache_;
  std::vector<int32_t> tokens_;
  std::vector<float> log_probabilities_, end_;
};

struct Outcome {
  std::vector<std::vector<Hypothesis>> translations;
  int64_t groups = 0;
};

Outcome TranslateAll(DecodeCapacity capacity, const std::vector<std::vector<int32_t>>& sources) {
  // Shorter sentences end first: what they leave is used again while their neighbours go on.
  const BeamOptions beam{.max_length_a = 1, .max_length_b = 2};
  Outcome outcome;
  outcome.translations.resize(sources.size());
  DecodeDriver driver(capacity, beam, 64, sources, outcome.translations);
  FakeRank rank(capacity);
  while (true) {
    const std::vector<DecodeCommand> commands = driver.Next(0);
    if (commands.empty()) return outcome;
    for (const DecodeCommand& command : commands) {
      outcome.groups += command.kind == DecodeCommand::Kind::kEncode;
      std::set<int32_t> written;
      for (const StepRow& row : command.rows) EXPECT_TRUE(written.insert(row.cache_row).second);
      rank.Execute(command);
    }
    driver.Advance(0, rank.table());
  }
}

std::vector<std::vector<int32_t>> Sources(int count) {
  std::vector<std::vector<int32_t>> sources(count);
  for (int s = 0; s < count; ++s) {
    for (int t = 0; t < 1 + s % 9; ++t) sources[s].push_back(4 + (s * 7 + t * 5) % 8);
    sources[s].push_back(kEosToken);
  }
  return sources;
}

constexpr DecodeCapacity Capacity(int32_t sentences, int64_t cache_rows) {
  return {.lanes = 1,
          .sentences = sentences,
          .rows = 64,
          .source_rows = 160,
          .longest_source = 16,
          .longest_path = 15,
          .cache_rows = cache_rows};
}

TEST(DecodeGroupTest, WhatAHypothesisSeesDependsNeitherOnNeighboursNorOnTheRoom) {
  const std::vector<std::vector<int32_t>> sources = Sources(23);
  const Outcome alone = TranslateAll(Capacity(1, 400), sources);
  EXPECT_EQ(alone.groups, 23);
  for (const int64_t cache_rows : {77, 90, 120, 200, 1000}) {  // 77 = 1 + 16 + 4 · 15: one sentence at its longest
    const Outcome together = TranslateAll(Capacity(16, cache_rows), sources);
    for (size_t s = 0; s < sources.size(); ++s) {
      ASSERT_EQ(alone.translations[s].size(), together.translations[s].size()) << "sentence " << s;
      for (size_t h = 0; h < alone.translations[s].size(); ++h) {
        EXPECT_EQ(alone.translations[s][h].tokens, together.translations[s][h].tokens) << "sentence " << s;
        EXPECT_EQ(alone.translations[s][h].score, together.translations[s][h].score);
      }
    }
  }
}

TEST(DecodeGroupTest, PutsBackTheLastSentencesWhereRoomIsShort) {
  const DecodeCapacity capacity = Capacity(4, 1 + 16 + 40);
  DecodeGroup group(capacity, {.max_length_b = 14}, 64, 0);
  const std::vector<std::vector<int32_t>> sources(4, {4, 5, 6, kEosToken});
  const std::vector<int32_t> sentences = {2, 0, 3, 1};
  FakeRank rank(capacity);
  rank.Execute(group.Start(sentences, sources));
  std::vector<DecodeGroup::Left> left;
  size_t steps = 0;
  while (left.empty() && steps++ < 14) {
    rank.Execute(group.Step(left));
    if (left.empty()) group.Advance(rank.table(), left);
  }
  ASSERT_FALSE(left.empty());
  EXPECT_FALSE(left[0].finished);
  EXPECT_EQ(left[0].sentence, 1);
}

// Greedy, and </s> only where nothing else may follow: so many steps, and cache rows, as a translation may be long.
// Translates all of `sources` in one group; nothing may be put back.
int64_t StepsOfOneGroup(const std::vector<std::vector<int32_t>>& sources, int64_t cache_rows) {
  DecodeGroup group(Capacity(4, cache_rows), {.beam = 1, .max_length_a = 1, .max_length_b = 0}, 64, 0);
  std::vector<int32_t> sentences(sources.size());
  std::iota(sentences.begin(), sentences.end(), 0);
  group.Start(sentences, sources);
  int64_t steps = 0;
  std::vector<DecodeGroup::Left> left;
  for (; !group.idle() && left.size() <= sources.size(); ++steps) {
    const auto rows = static_cast<int64_t>(group.Step(left).rows.size());
    std::vector<int32_t> tokens;
    std::vector<float> log_probabilities, end(rows, -100.0f);
    for (int64_t i = 0; i < rows * kCandidates; ++i) {
      tokens.push_back(kSpecialTokens + static_cast<int32_t>(i % kCandidates));
      log_probabilities.push_back(static_cast<float>(-1 - i % kCandidates));
    }
    group.Advance(
        {{tokens.data(), rows, kCandidates}, {log_probabilities.data(), rows, kCandidates}, {end.data(), rows}}, left);
  }
  EXPECT_EQ(left.size(), sources.size());
  for (const DecodeGroup::Left& sentence : left) EXPECT_TRUE(sentence.finished) << sentence.sentence;
  return steps;
}

// The last steps of the long one need the rows of the short one's source and path.
TEST(DecodeGroupTest, AFinishedSentenceLeavesAllItsRows) {
  const std::vector<int32_t> short_source = {4, 5, kEosToken};
  std::vector<int32_t> long_source(14, 6);
  long_source.push_back(kEosToken);
  const int64_t longest = StepsOfOneGroup({long_source}, 200);
  EXPECT_EQ(longest, std::ssize(long_source) + 1) << "a token for each of the source's, and </s>";
  EXPECT_GT(longest, 2 * std::ssize(short_source) + 2) << "the short one ends early";
  EXPECT_EQ(StepsOfOneGroup({long_source, short_source}, 1 + std::ssize(long_source) + longest), longest);
}

TEST(DecodeCommandTest, SurvivesItsBytes) {
  const DecodeCapacity capacity = Capacity(4, 100);
  const DecodeCommand encode{
      .kind = DecodeCommand::Kind::kEncode, .lane = 3, .source_offsets = {0, 2, 5}, .source = {9, 2, 7, 8, 2}};
  const DecodeCommand step{
      .kind = DecodeCommand::Kind::kStep, .lane = 1, .rows = {{4, 5, 6, 7, 8}, {9, 10, 11, 12, 13}}};
  std::vector<int32_t> bytes(DecodeCommand::MostIntegers(capacity));
  DecodeCommand read;
  ASSERT_TRUE(read.Read({bytes.data(), static_cast<size_t>(encode.Write(bytes))}).ok());
  EXPECT_EQ(read.lane, 3);
  EXPECT_EQ(read.source_offsets, encode.source_offsets);
  EXPECT_EQ(read.source, encode.source);
  const int64_t integers = step.Write(bytes);
  ASSERT_TRUE(read.Read({bytes.data(), static_cast<size_t>(integers)}).ok());
  ASSERT_EQ(read.rows.size(), 2u);
  EXPECT_EQ(read.rows[1].cache_row, 12);
  EXPECT_TRUE(read.source.empty());
  EXPECT_FALSE(read.Read({bytes.data(), static_cast<size_t>(integers - 1)}).ok());
  // One offset, and a negative number of tokens.
  EXPECT_FALSE(read.Read(std::vector<int32_t>{static_cast<int32_t>(DecodeCommand::Kind::kEncode), 0, 1, -1}).ok());
}

// Two ranks of two chunks each; the second has the head.
class DecodeLinksTest : public ::testing::Test {
 protected:
  DecodeLinksTest() {
    for (int rank = 0; rank < 2; ++rank) {
      ArenaLayout layout;
      links_.emplace_back(plan_, pipeline_, rank, kCapacity, Stream::Cpu(1), layout);
      arenas_.push_back(Arena::Allocate(layout).value());
      links_[rank].Bind(arenas_[rank], world_.communicator(rank), absl::Seconds(30));
    }
  }

  static constexpr DecodeCapacity kCapacity = Capacity(4, 100);
  const ModelPlan plan_ = TinyPlan();
  const PipelineLayout pipeline_ = MakePipelineLayout(plan_, {.micro_batches = 2, .target_tokens = 8},
                                                      {.chunks = 2, .schedule = ScheduleKind::kInterleaved1F1B}, 2)
                                       .value();
  InProcessWorld world_{2};
  std::vector<Arena> arenas_;
  std::vector<DecodeLinks> links_;
};

// None is received before all are sent, as many as there are buffers for.
TEST_F(DecodeLinksTest, MessagesUnderWayAreNotOverwritten) {
  std::vector<float> values(8);
  for (int m = 0; m < 4; ++m) {
    std::ranges::fill(values, static_cast<float>(m));
    ASSERT_TRUE(links_[0].SendResidual(m % 2, ConstMatrix{values.data(), 1, 8}).ok());
  }
  DecodeCommand command{.kind = DecodeCommand::Kind::kStep, .rows = {{}}};
  for (; command.rows[0].token < 3; ++command.rows[0].token) ASSERT_TRUE(links_[1].SendCommand(command).ok());
  for (int m = 0; m < 4; ++m) {
    ASSERT_TRUE(links_[1].ReceiveResidual(m % 2, Matrix{values.data(), 1, 8}).ok());
    EXPECT_THAT(values, ::testing::Each(static_cast<float>(m)));
  }
  for (int32_t m = 0; m < 3; ++m) {
    ASSERT_TRUE(links_[0].ReceiveCommand(command).ok());
    EXPECT_EQ(command.rows[0].token, m);
  }
  for (DecodeLinks& links : links_) EXPECT_TRUE(links.Drain().ok());
}

TEST_F(DecodeLinksTest, AResidualOfOtherRowsIsRefused) {
  std::vector<float> values(3 * 8);
  ASSERT_TRUE(links_[0].SendResidual(0, ConstMatrix{values.data(), 2, 8}).ok());
  EXPECT_THAT(std::string(links_[1].ReceiveResidual(0, Matrix{values.data(), 3, 8}).message()),
              ::testing::HasSubstr("rank 0 sent 64 bytes of the decoder's residual stream where 96 were expected"));
}

int64_t BytesOf(const ArenaLayout& layout, const std::string& name) {
  int64_t bytes = 0;
  for (const ArenaLayout::Category& category : layout.categories()) bytes += category.name == name ? category.bytes : 0;
  return bytes;
}

// Of an encoder with more rows than a step and the other way round; with several streams, and a second one.
TEST(DecodeBuffersTest, HaveRoomForTheRowsOfBothStacks) {
  for (const ResidualMethod method : {ResidualMethod::kPostLn, ResidualMethod::kMhc, ResidualMethod::kResidualDual}) {
    ModelOptions model = TinyModel();
    ApplyResidualMethod(method, model);
    const ModelPlan plan = ModelPlan::Make(model);
    std::set<int64_t> workspaces;
    for (const int64_t rows : {8, 64}) {
      DecodeCapacity capacity = Capacity(4, 100);
      capacity.rows = rows, capacity.source_rows = 72 - rows;
      ArenaLayout layout;
      DecodeBuffers buffers(plan, capacity, Stream::Cpu(1), layout);
      workspaces.insert(BytesOf(layout, "workspace"));
      buffers.RequireSaved(1);
      buffers.ReserveRequired(layout);
      const Arena arena = Arena::Allocate(layout).value();
      buffers.Bind(arena);
      const AnyMatrix even = buffers.residual(0, plan.Residuals(Stack::kDecoder) * 64, Storage::kFloat32);
      const AnyMatrix odd = buffers.residual(1, even.rows, Storage::kFloat32);
      const Matrix second = buffers.second(64);
      EXPECT_GE(static_cast<char*>(odd.data) - static_cast<char*>(even.data), even.bytes());
      const auto* const behind =
          plan.HasSecond(Stack::kDecoder) ? second.data : reinterpret_cast<float*>(buffers.saved());
      EXPECT_GE(reinterpret_cast<const char*>(behind) - static_cast<char*>(odd.data), even.bytes());
      if (!plan.HasSecond(Stack::kDecoder)) continue;
      EXPECT_GE(reinterpret_cast<float*>(buffers.saved()) - second.data, 64 * second.columns);
    }
    EXPECT_EQ(workspaces.size(), 1u) << "also for the rows of a step";
  }
}

using testing::ElementsAre;
using testing::IsEmpty;

constexpr DecodeCapacity kLarge = {.sentences = 8, .source_rows = 1000, .longest_path = 50, .cache_rows = 100'000};

std::vector<std::vector<int32_t>> Groups(std::vector<int32_t> source_rows, const DecodeCapacity& capacity,
                                         int32_t beam) {
  DecodeQueue queue(std::move(source_rows), capacity, {.beam = beam});
  std::vector<std::vector<int32_t>> groups;
  while (!queue.empty()) groups.push_back(queue.Next());
  return groups;
}

TEST(DecodeQueue, TheLongestComeFirstAndEqualOnesInTheirOrder) {
  EXPECT_THAT(Groups({3, 9, 5, 9, 1}, kLarge, 4), ElementsAre(ElementsAre(1, 3, 2, 0, 4)));
  EXPECT_THAT(Groups({}, kLarge, 4), IsEmpty());
}

TEST(DecodeQueue, AGroupHasNoMoreSentencesThanALane) {
  DecodeCapacity capacity = kLarge;
  capacity.sentences = 2;
  EXPECT_THAT(Groups({5, 4, 3, 2, 1}, capacity, 20), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
}

// 12 sentences for 3 lanes: 4 each, although a lane would take 8. No thinner than steps of 16 rows: with a beam of 2 a
// lane is filled.
TEST(DecodeQueue, FewSentencesAreSpreadOverTheLanes) {
  const std::vector<int32_t> sources(12, 5);
  DecodeCapacity capacity = kLarge;
  capacity.lanes = 3;
  EXPECT_THAT(Groups(sources, capacity, 20), ElementsAre(testing::SizeIs(4), testing::SizeIs(4), testing::SizeIs(4)));
  EXPECT_THAT(Groups(sources, capacity, 2), ElementsAre(testing::SizeIs(8), testing::SizeIs(4)));
}

TEST(DecodeQueue, SourcesAndWhatTheCacheProbablyHoldsEndAGroup) {
  DecodeCapacity capacity = kLarge;
  capacity.source_rows = 20;
  EXPECT_THAT(Groups({10, 10, 1}, capacity, 4), ElementsAre(ElementsAre(0, 1), ElementsAre(2))) << "exactly full";
  capacity = kLarge;
  // 10 source rows: a path of 10 + 5 + 8, of which the 4 hypotheses share all but 24 rows in all. One row of the cache
  // is nobody's.
  capacity.cache_rows = 1 + 2 * (10 + 23 + 24);
  EXPECT_THAT(Groups({10, 10, 10}, capacity, 4), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  --capacity.cache_rows;
  EXPECT_THAT(Groups({10, 10, 10}, capacity, 4), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

// Samples share nothing, and a language model's texts may be as long as the longest: 50.
TEST(DecodeQueue, SamplesTakeAPathEach) {
  DecodeCapacity capacity = kLarge;
  const auto groups = [&](const std::vector<int32_t>& source_rows) {
    DecodeQueue queue(source_rows, capacity, {.beam = 4, .sampling = DrawOptions{}});
    std::vector<std::vector<int32_t>> found;
    while (!queue.empty()) found.push_back(queue.Next());
    return found;
  };
  capacity.cache_rows = 1 + 2 * (10 + 4 * 23);
  EXPECT_THAT(groups({10, 10, 10}), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  capacity.cache_rows = 1 + 2 * 4 * 50;
  EXPECT_THAT(groups({0, 0, 0}), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
}

TEST(DecodeQueue, WhatFitsNowhereIsTriedAlone) {
  DecodeCapacity capacity = kLarge;
  capacity.cache_rows = 1;
  EXPECT_THAT(Groups({10, 20}, capacity, 4), ElementsAre(ElementsAre(1), ElementsAre(0)));
}

TEST(DecodeQueue, WhatIsPutBackIsNext) {
  DecodeQueue queue({1, 2, 3}, kLarge, {.beam = 4});
  EXPECT_THAT(queue.Next(), ElementsAre(2, 1, 0));
  EXPECT_TRUE(queue.empty());
  queue.PutBack(0);
  queue.PutBack(1);
  EXPECT_THAT(queue.Next(), ElementsAre(1, 0));
}

std::vector<std::vector<Hypothesis>> Translations() {
  return {{{.tokens = {7, 2147483647, 4},
            .token_log_probabilities = {-0.5f, -1e-30f, -3, -0.25f},
            .log_probability = -3.75,
            .score = -1.1},
           {.tokens = {}, .token_log_probabilities = {-2}, .log_probability = -2, .score = -2}},
          {},  // a sentence without a translation
          {{.tokens = {5},
            .token_log_probabilities = {-std::numeric_limits<float>::infinity(), 0},
            .log_probability = -std::numeric_limits<double>::infinity(),
            .score = 1e300}}};
}

TEST(TranslationBytes, ComeBackAsTheyWere) {
  const auto translations = Translations();
  const auto back = TranslationsFromBytes(TranslationsToBytes(translations));
  ASSERT_EQ(back->size(), translations.size());
  for (size_t s = 0; s < translations.size(); ++s) {
    ASSERT_EQ((*back)[s].size(), translations[s].size()) << s;
    for (size_t h = 0; h < translations[s].size(); ++h) {
      const Hypothesis &was = translations[s][h], &is = (*back)[s][h];
      EXPECT_EQ(is.tokens, was.tokens);
      EXPECT_EQ(is.token_log_probabilities, was.token_log_probabilities);
      EXPECT_EQ(is.log_probability, was.log_probability);
      EXPECT_EQ(is.score, was.score);
    }
  }
  EXPECT_TRUE(TranslationsFromBytes(TranslationsToBytes({}))->empty());
}

TEST(TranslationBytes, CutShortAnywhereOrTooLongTheyAreRefused) {
  const std::string bytes = TranslationsToBytes(Translations());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(TranslationsFromBytes(std::string_view(bytes).substr(0, length)).status().code(),
              absl::StatusCode::kInternal)
        << length;
  }
  EXPECT_EQ(TranslationsFromBytes(bytes + '\0').status().code(), absl::StatusCode::kInternal);
}

// A count that the bytes behind it cannot hold must not be believed: it would be allocated.
TEST(TranslationBytes, ACountBeyondTheBytesIsRefused) {
  const std::string bytes = TranslationsToBytes(Translations());
  for (size_t at = 0; at < 3; ++at) {  // of sentences, of hypotheses, of tokens
    for (const uint64_t count : {uint64_t{1} << 40, std::numeric_limits<uint64_t>::max()}) {
      std::string damaged = bytes;
      std::memcpy(damaged.data() + at * sizeof(count), &count, sizeof(count));
      EXPECT_EQ(TranslationsFromBytes(damaged).status().code(), absl::StatusCode::kInternal) << at;
    }
  }
}

}  // namespace
}  // namespace hadal
