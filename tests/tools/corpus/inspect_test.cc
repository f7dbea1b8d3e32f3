#include <cmath>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "runtime/data/corpus.h"
#include "runtime/data/sampling_order.h"
#include "tests/support/corpus_of.h"
#include "tests/support/step_batches.h"
#include "tests/support/temporary_directory.h"
#include "tools/corpus/inspect.h"
#include "tools/corpus/prepare.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Property;

class InspectTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetContents(directory_ / "dict.txt", "a 1\nb 1\nc 1\n");
    SetContents(directory_ / "x.en", "a b\nb b c\nc\na a a a\n");
    SetContents(directory_ / "x.de", "b a\nc b b\nc\na a b a\n");
    PrepareOptions prepare;
    prepare.train = {{directory_ / "x.en", directory_ / "x.de"}};
    prepare.output = directory_ / "out";
    prepare.source_vocabulary = prepare.target_vocabulary = directory_ / "dict.txt";
    std::ostringstream out;
    ASSERT_TRUE(RunPrepare(prepare, out).ok());
    options_ = {
        .data = directory_ / "out/train", .seed = 4, .micro_batches = 2, .source_tokens = 7, .target_tokens = 7};
  }

  const TemporaryDirectory directory_;
  InspectBatchOptions options_;
  std::ostringstream out_;
};

TEST_F(InspectTest, PrintsWhatTheStepTrainsOn) {
  options_.step = 4;  // the fourth; data count from 0
  ASSERT_TRUE(RunInspectBatch(options_, out_).ok());
  const Corpus corpus = *Corpus::Open(options_.data);
  const StepBatches step = StepOf(*SamplingOrder::Create(corpus, {4, {7, 7}, 2}), 3, 2);
  for (const PackedBatch& batch : step.micro_batches) {
    EXPECT_THAT(out_.str(),
                HasSubstr(absl::StrCat("micro-batch ", batch.micro_batch, ": ", batch.sentences(), " sent")));
    for (const int64_t sample : batch.samples) {
      EXPECT_THAT(out_.str(),
                  HasSubstr(absl::StrCat("source ", absl::StrJoin(corpus.sample(sample).source, " "), " 2\n")));
      EXPECT_THAT(out_.str(),
                  HasSubstr(absl::StrCat("target ", absl::StrJoin(corpus.sample(sample).target, " "), " 2\n")));
    }
  }
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("step 4, seed 4: "), HasSubstr(absl::StrCat(step.target_tokens, " target rows; "))));
}

TEST_F(InspectTest, LeavesOutWhatIsLongerThanTheModelsPositions) {
  for (const int64_t longest : {5, 4}) {  // sample 3 has five tokens
    options_.max_positions = longest;
    std::ostringstream out;
    for (options_.step = 1; options_.step <= 4; ++options_.step) ASSERT_TRUE(RunInspectBatch(options_, out).ok());
    EXPECT_THAT(out.str(), HasSubstr("sample 2,"));
    EXPECT_EQ(out.str().find("sample 3,") != std::string::npos, longest == 5);
    EXPECT_EQ(out.str().find("\n1 of 4 samples are longer") != std::string::npos, longest == 4);
  }
}

TEST_F(InspectTest, PrintsAsManySentencesAsAreRequested) {
  options_.micro_batches = options_.max_sentences = 1;
  options_.source_tokens = options_.target_tokens = 20;
  ASSERT_TRUE(RunInspectBatch(options_, out_).ok());
  EXPECT_THAT(out_.str(), AllOf(HasSubstr(": 4 sentences, "), HasSubstr("\n  and 3 more\n")));
  EXPECT_EQ(out_.str().find("\n  sample"), out_.str().rfind("\n  sample"));
}

TEST_F(InspectTest, IdsAloneNeedNoVocabulary) {
  std::filesystem::remove(directory_ / "out/vocabulary.txt");
  EXPECT_FALSE(RunInspectBatch(options_, out_).ok());
  options_.ids_only = true;
  ASSERT_TRUE(RunInspectBatch(options_, out_).ok());
  EXPECT_THAT(out_.str(), Not(HasSubstr("\"")));
}

TEST_F(InspectTest, BadUseIsSaid) {
  const auto error = [&] { return std::string(RunInspectBatch(options_, out_).message()); };
  options_.temperatures = {0.0};
  EXPECT_THAT(error(), HasSubstr("a sampling temperature of 0"));
  options_.temperatures = {1.0};
  options_.source_tokens = 1;
  EXPECT_THAT(error(), HasSubstr("none of the corpus's 4 samples"));
  options_.data = directory_ / "none";
  EXPECT_THAT(error(), HasSubstr("none.json"));
}

TEST(InspectCorpus, CountsTokensAndEntropyOfASide) {
  const Corpus corpus = CorpusOf(
      {{.source = {4}, .target = {4, 5}}, {.source = {4, 4, 4}, .target = {4}}, {.source = {5, 6}, .target = {4}}}, 8,
      6);
  const SideStatistics source = *DescribeSource(corpus);
  EXPECT_EQ(source.tokens, 9);
  EXPECT_EQ(source.longest, 4);
  EXPECT_EQ(source.distinct, 4);
  // Source: 4 × "4", 1 × "5", 1 × "6", 3 × </s> of 9.
  const auto term = [](double count, double of) { return -count / of * std::log(count / of); };
  EXPECT_NEAR(source.unigram_entropy, term(4, 9) + 2 * term(1, 9) + term(3, 9), 1e-12);
  const SideStatistics target = *DescribeTarget(corpus);
  EXPECT_EQ(target.tokens, 7);
  EXPECT_NEAR(target.unigram_entropy, 2 * term(3, 7) + term(1, 7), 1e-12);
}

TEST(InspectCorpus, ScoresOtherTextByTheseFrequencies) {
  const Corpus counted = CorpusOf({{.source = {4}, .target = {4, 4}}, {.source = {4}, .target = {5}}}, 8, 6);
  const Corpus text = CorpusOf({{.source = {4}, .target = {4}}, {.source = {4}, .target = {3, 5}}}, 8, 6);
  // Counts: 2 × "4", 1 × "5", 2 × </s>; half an occurrence more for each of six tokens: 8 in all.
  const double four = -std::log(2.5 / 8), five = -std::log(1.5 / 8), end = -std::log(2.5 / 8),
               unseen = -std::log(0.5 / 8);
  EXPECT_NEAR(*UnigramNll(counted, text, std::vector<int64_t>{0, 1}), (four + end + unseen + five + end) / 5, 1e-12);
  EXPECT_NEAR(*UnigramNll(counted, text, std::vector<int64_t>{0}), (four + end) / 2, 1e-12);
}

void WriteTargets(const std::string& prefix, const std::vector<std::vector<int32_t>>& targets, uint32_t vocabulary) {
  CorpusWriter writer = *CorpusWriter::Create({.prefix = prefix,
                                               .source_vocabulary = {"source.model", 8, 17},
                                               .target_vocabulary = {"target.model", 6, vocabulary},
                                               .corpora = {"one"}});
  for (const std::vector<int32_t>& target : targets) {
    ASSERT_TRUE(writer.Add({.source = std::vector<int32_t>{4}, .target = target}).ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
}

TEST(InspectCorpus, PrintsTheScoreOfAnotherCorpus) {
  const TemporaryDirectory directory;
  WriteTargets(directory / "counted", {{4, 4}, {5}}, 18);
  WriteTargets(directory / "text", {{4}, {3, 5}}, 18);
  WriteTargets(directory / "other", {{4}}, 19);
  InspectCorpusOptions options{.data = directory / "counted", .score = directory / "text", .max_sentences = 1};
  std::ostringstream out;
  ASSERT_EQ(RunInspectCorpus(options, out), absl::OkStatus());
  EXPECT_THAT(out.str(), HasSubstr(absl::StrFormat("text: 1 targets have nll %.4f nats", -std::log(2.5 / 8))));
  options.score = directory / "other";
  EXPECT_THAT(std::string(RunInspectCorpus(options, out).message()), HasSubstr("different vocabularies"));
}

TEST(InspectCorpus, PlainTextHasTargetsOnly) {
  const Corpus corpus = CorpusOf({{.target = {4, 5}}, {.target = {4}}}, 0, 6);
  EXPECT_TRUE(corpus.manifest().monolingual());
  EXPECT_EQ(DescribeTarget(corpus)->tokens, 5);
}

// A token outside the vocabulary, in a file that was sound when it was opened.
TEST(InspectCorpus, AFileThatChangesIsNamed) {
  const TemporaryDirectory directory;
  WriteTargets(directory / "text", {{5}}, 18);
  const Corpus corpus = *Corpus::Open(directory / "text");
  const std::string shard = directory / "text.00000.shard";
  FlipBit(shard, std::filesystem::file_size(shard) - 2);
  EXPECT_THAT(DescribeTarget(corpus).status(),
              AllOf(Property(&absl::Status::code, absl::StatusCode::kDataLoss),
                    Property(&absl::Status::message, HasSubstr(shard + ": it was changed"))));
  EXPECT_EQ(UnigramNll(corpus, corpus, std::vector<int64_t>{0}).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace

}  // namespace hadal
