#include "tools/corpus/prepare.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/corpus.h"
#include "tests/tools/corpus/prepare_fixture.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(PrepareTest, TextRoundTripsThroughAllSplits) {
  Write("valid.en", "The fish sleeps.\n");
  Write("valid.de", "Der Fisch schläft.\n");
  options_.valid = {{Path("valid.en"), Path("valid.de")}};
  options_.test = options_.train;
  ASSERT_TRUE(Run().ok());
  const Corpus train = OpenCorpus("train");
  ASSERT_EQ(train.size(), 3);
  EXPECT_EQ(SourceText(train, 1), "The dog eats the fish.");
  EXPECT_EQ(TargetText(train, 0), "Die Katze schläft.");
  EXPECT_EQ(SourceText(OpenCorpus("valid"), 0), "The fish sleeps.");
  EXPECT_EQ(OpenCorpus("test").size(), 3);
  EXPECT_EQ(train.manifest().source_vocabulary.file, "vocabulary.model");
  EXPECT_EQ(train.manifest().target_vocabulary.file, "vocabulary.model");
  EXPECT_THAT(out_.str(), HasSubstr("wrote train: 3 pairs"));
  EXPECT_THAT(out_.str(), HasSubstr("nothing skipped"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("removed")));
  const CorpusStatistics& all = train.manifest().statistics;
  EXPECT_THAT(out_.str(), HasSubstr(absl::StrCat("; source ", all.source_tokens, " tokens (longest ",
                                                 all.longest_source, ", none unknown), target ", all.target_tokens,
                                                 " (longest ", all.longest_target, ", none unknown); nothing")));
}

TEST_F(PrepareTest, PlainTextHasNoSource) {
  options_.monolingual = true;
  options_.train = {{"", Path("train.de")}, {"", Path("train.en")}};
  options_.training.size = 70;
  Write("train.en", absl::StrCat(kEnglish, "\n"));
  const absl::Status status = Run();
  ASSERT_TRUE(status.ok()) << status;
  const Corpus train = OpenCorpus("train");
  ASSERT_EQ(train.size(), 6);
  EXPECT_TRUE(train.manifest().monolingual());
  EXPECT_EQ(train.manifest().target_vocabulary.file, "vocabulary.model");
  EXPECT_FALSE(train.sample(0).has_source);
  EXPECT_TRUE(train.sample(0).source.empty());
  EXPECT_EQ(TargetText(train, 1), "Der Hund frisst den Fisch.");
  EXPECT_EQ(TargetText(train, 3), "The cat sleeps.");
  EXPECT_THAT(train.manifest().corpora, ::testing::ElementsAre("train.de", "train.en"));
  for (const char* said : {"training a BPE vocabulary of 70 ids on 6 lines", "read train: 7 lines",
                           "wrote train: 6 lines; ", "skipped 1 of 7 (14.3%): 1 empty"}) {
    EXPECT_THAT(out_.str(), HasSubstr(said));
  }
  options_.separate = true;
  EXPECT_THAT(std::string(Run().message()), HasSubstr("one vocabulary"));
}

TEST_F(PrepareTest, SameTextSameFiles) {
  ASSERT_TRUE(Run().ok());
  options_.output = Path("again");
  ASSERT_TRUE(Run().ok());
  for (const char* file : {"vocabulary.model", "train.json", "train.00000.shard"}) {
    EXPECT_EQ(Read(absl::StrCat("out/", file)), Read(absl::StrCat("again/", file))) << file;
    EXPECT_FALSE(Read(absl::StrCat("out/", file)).empty());
  }
}

TEST_F(PrepareTest, SeveralPairsCountAsCorpora) {
  Write("more.en", "A dog reads.\n");
  Write("more.de", "Ein Hund liest.\n");
  options_.train.push_back({Path("more.en"), Path("more.de")});
  ASSERT_TRUE(Run().ok());
  const Corpus train = OpenCorpus("train");
  ASSERT_EQ(train.size(), 4);
  EXPECT_EQ(train.sample(2).corpus_id, 0);
  EXPECT_EQ(train.sample(3).corpus_id, 1);
  EXPECT_THAT(train.manifest().corpora, ::testing::ElementsAre("train.en / train.de", "more.en / more.de"));
}

TEST_F(PrepareTest, TextThatIsForTrainingAndForValidationIsWarnedOf) {
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), AllOf(Not(HasSubstr("source equals")), Not(HasSubstr("are also"))));
  Write("valid.en", "Another line.\nThe cat reads.\n");
  options_.valid = {{Path("valid.en"), Path("valid.en")}};
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), AllOf(Not(HasSubstr("source equals")), Not(HasSubstr("are also")))) << "not the same pair";
  options_.valid = options_.train;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("warning: 3 training pairs are also validation or test pairs;"));
}

TEST_F(PrepareTest, ASourceThatIsItsTargetIsWarnedOf) {
  options_.train = {{Path("train.en"), Path("train.en")}};
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("warning: the source equals the target in 100% of the training pairs;"));
}

TEST_F(PrepareTest, TargetsThatNormalizationChangesAreWarnedOf) {
  Write("wide.de", "Eine Katze！\nEin Hund？\nEine Katze.\n");
  options_.train.push_back({Path("train.en"), Path("wide.de")});
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("warning: the vocabulary's normalization changes characters in 67% of the targets "
                                    "of train.en / wide.de"));
  options_.training.normalization = "identity";
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), Not(HasSubstr("normalization")));
}

TEST_F(PrepareTest, SeveralTargetLanguagesWithoutTagsAreWarnedOf) {
  const auto pair = [&](const char* target) {
    return TextPair{.source = Path("train.en"), .target = Path("train.de"), .direction = {"en", target}};
  };
  options_.train = {pair("de"), pair("nl")};
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("warning: text in en is translated to de, nl, and without --tags"));
  options_.train = {pair("de"), {.source = Path("train.en"), .target = Path("train.de"), .direction = {"fr", "de"}}};
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), Not(HasSubstr("--tags")));
}

TEST_F(PrepareTest, OptionsThatLeaveNothingAreRefused) {
  options_.max_tokens = 0;
  ExpectError({"--max-tokens 0"});
  EXPECT_FALSE(std::filesystem::exists(Path("out")));
  options_.max_tokens = 1;
  ExpectError({"no line is left of the train text", "3 of 3 (100%): 3 longer than 1 tokens; raise --max-tokens 1"});
  options_.max_tokens = 100;
  ASSERT_TRUE(Run().ok()) << "what failed is not in the way";
  options_.output.clear();
  EXPECT_THAT(std::string(Run().message()), HasSubstr("--out"));
}

TEST_F(PrepareTest, MissingFilesAndFoldersAreNamed) {
  options_.train[0].target = Path("none.de");
  ExpectError({"none.de"});
  options_.train[0].target = directory_.path();
  ExpectError({directory_.path()});
  options_.train.clear();
  ExpectError({"--train"});
}

// Real text: what SentencePiece's normalisation would change stays as it was.
TEST_F(PrepareTest, RealTextRoundTrips) {
  const std::string text = HADAL_REAL_TEXT "/sentences";
  options_.train = {{text + ".en", text + ".de"}};
  options_.training = {.size = 800, .normalization = "identity"};
  const absl::Status status = Run();
  ASSERT_TRUE(status.ok()) << status;
  std::ifstream english(text + ".en"), german(text + ".de");
  const Corpus corpus = OpenCorpus("train");
  const CorpusVocabularies vocabularies = *LoadVocabularies(corpus);
  std::string source, target;
  int64_t i = 0;
  for (; std::getline(english, source) && std::getline(german, target); ++i) {
    EXPECT_EQ(vocabularies.source.Decode(corpus.sample(i).source), source);
    EXPECT_EQ(vocabularies.target.Decode(corpus.sample(i).target), target);
  }
  EXPECT_EQ(i, 450);
  EXPECT_EQ(i, corpus.size());
  EXPECT_EQ(corpus.manifest().statistics.source_unknown, 0);
}

// Nothing is said of text that was read.
TEST_F(PrepareTest, WhatNeedsNoTextIsToldBeforeAnyIsRead) {
  const auto refused_at_once = [&](const PrepareOptions& options, const std::string& what) {
    out_.str("");
    const absl::Status status = RunPrepare(options, out_);
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    EXPECT_EQ(out_.str(), "") << what;
  };
  PrepareOptions changed = options_;
  changed.training.size = 4;
  refused_at_once(changed, "a vocabulary of 4 ids has no room");
  changed = options_;
  changed.training.character_coverage = 2;
  refused_at_once(changed, "character coverage 2");
  changed = options_;
  changed.training.normalization = "none";
  refused_at_once(changed, "unknown normalization 'none'");
  changed = options_;
  changed.source_vocabulary = changed.target_vocabulary = Path("gone.model");
  refused_at_once(changed, "gone.model");
  changed.source_vocabulary = changed.target_vocabulary = Path("train.en");
  refused_at_once(changed, "train.en, line 1");
  changed = options_;
  changed.test = {{Path("train.en"), Path("gone.de")}};
  refused_at_once(changed, "gone.de");
  ASSERT_TRUE(Run().ok());
  refused_at_once(options_, "train.json already exists");
}

}  // namespace
}  // namespace hadal
