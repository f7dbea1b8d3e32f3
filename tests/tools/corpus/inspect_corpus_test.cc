#include "tools/corpus/inspect.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/corpus.h"
#include "tests/support/corpus_of.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Property;

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
  const absl::Status status = RunInspectCorpus(options, out);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(out.str(), HasSubstr(absl::StrFormat("text: 1 targets have nll %.4f nats", -std::log(2.5 / 8))));
  options.score = directory / "other";
  EXPECT_THAT(std::string(RunInspectCorpus(options, out).message()), HasSubstr("different vocabularies"));
}

TEST(InspectCorpus, PlainTextHasTargetsOnly) {
  const Corpus corpus = CorpusOf({{.target = {4, 5}}, {.target = {4}}}, 0, 6);
  EXPECT_TRUE(corpus.manifest().monolingual());
  EXPECT_EQ(DescribeTarget(corpus)->tokens, 5);
}

TEST(InspectCorpus, AnEvenlyUsedVocabularyHasTheLogOfItsSize) {
  const Corpus corpus = CorpusOf({{.source = {4, 5, 6}, .target = {7}}}, 8, 8);
  EXPECT_NEAR(DescribeSource(corpus)->unigram_entropy, std::log(4), 1e-12);
  EXPECT_NEAR(DescribeTarget(corpus)->unigram_entropy, std::log(2), 1e-12);
}

// A token outside the vocabulary, in a file that was sound when it was opened.
TEST(InspectCorpus, AFileThatChangesIsNamed) {
  const TemporaryDirectory directory;
  CorpusWriter writer = *CorpusWriter::Create({.prefix = directory / "text",
                                               .source_vocabulary = {"source.model", 8, 17},
                                               .target_vocabulary = {"target.model", 8, 18},
                                               .corpora = {"one"}});
  ASSERT_TRUE(writer.Add({.source = std::vector<int32_t>{4}, .target = std::vector<int32_t>{5}}).ok());
  ASSERT_TRUE(writer.Finish().ok());
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
