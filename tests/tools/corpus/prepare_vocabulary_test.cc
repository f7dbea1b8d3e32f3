// The vocabularies of `hadal prepare`: trained or given, shared or one a side.
#include "tools/corpus/prepare_corpus.h"

#include <filesystem>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "runtime/data/corpus.h"
#include "tests/tools/corpus/prepare_fixture.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(PrepareTest, SeparateUnigramVocabularies) {
  WriteLongText();
  options_.separate = true;
  options_.training.algorithm = PieceAlgorithm::kUnigram;
  options_.training.size = 90;
  ASSERT_EQ(Run(), absl::OkStatus());
  const Corpus train = OpenCorpus("train");
  EXPECT_EQ(train.manifest().source_vocabulary.file, "source.model");
  EXPECT_EQ(train.manifest().target_vocabulary.file, "target.model");
  EXPECT_EQ(SourceText(train, 0), EnglishLine(0));
  EXPECT_EQ(TargetText(train, 0), GermanLine(0));
}

TEST_F(PrepareTest, AnExistingModelIsUsed) {
  ASSERT_TRUE(Run().ok());
  options_.source_vocabulary = options_.target_vocabulary = Path("out/vocabulary.model");
  options_.output = Path("again");
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), Not(HasSubstr("training")));
  EXPECT_EQ(Read("out/train.00000.shard"), Read("again/train.00000.shard"));
}

TEST_F(PrepareTest, ATextOfUnknownTokensIsShownAsSuch) {
  Write("dict.txt", "the 3\n");
  Write("train.en", "cat\n");
  Write("train.de", "katze\n");
  options_.source_vocabulary = options_.target_vocabulary = Path("dict.txt");
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("source 1 tokens (longest 1, 100% unknown)"));
  EXPECT_THAT(out_.str(), HasSubstr("warning: 100% of the source tokens are unknown"));
  EXPECT_THAT(out_.str(), HasSubstr("warning: 100% of the target tokens are unknown"));
}

TEST_F(PrepareTest, TextThatIsAlreadyInPiecesIsWarnedOf) {
  WriteLongText();
  options_.training.size = 90;
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(out_.str(), Not(HasSubstr("in pieces")));
  const std::string pieces = Read("train.de");
  Write("train.de", absl::StrReplaceAll(pieces, {{"chen", "chen@@ "}}));
  options_.overwrite = true;
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(out_.str(), HasSubstr("warning: the text is already in pieces (subword-nmt's mark \"@@ \")"));
  Write("train.de", absl::StrReplaceAll(pieces, {{"chen", "▁chen"}}));
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(out_.str(), HasSubstr("(SentencePiece's mark \"▁\")"));
}

TEST_F(PrepareTest, DictionariesTakeTokenisedText) {
  Write("dict.en.txt", "the 3\ncat 2\nsleeps 1\n. 1\n");
  Write("dict.de.txt", "die 3\nkatze 2\n. 1\n");
  Write("train.en", "the cat sleeps .\n");
  Write("train.de", "die katze schläft .\n");
  options_.source_vocabulary = Path("dict.en.txt");
  options_.target_vocabulary = Path("dict.de.txt");
  ASSERT_TRUE(Run().ok());
  const Corpus train = OpenCorpus("train");
  EXPECT_THAT(train.sample(0).source, ::testing::ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(train.sample(0).target, ::testing::ElementsAre(4, 5, kUnknownToken, 6));
  EXPECT_EQ(train.manifest().source_vocabulary.file, "source.txt");
  EXPECT_THAT(out_.str(), HasSubstr("none unknown), target 4 (longest 4, 25% unknown)"));

  options_.output = Path("again");
  options_.target_vocabulary.clear();
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(OpenCorpus("train").sample(0).target, ::testing::ElementsAre(4, 5, kUnknownToken, 6)) << "as it was";
  const Corpus one_side = *Corpus::Open(Path("again/train"));
  EXPECT_EQ(one_side.manifest().target_vocabulary.file, "vocabulary.txt") << "one that is given serves both sides";
  EXPECT_THAT(one_side.sample(0).source, ::testing::ElementsAre(4, 5, 6, 7));
  options_.overwrite = true;
  std::swap(options_.source_vocabulary, options_.target_vocabulary);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Read("again/vocabulary.txt"), Read("dict.en.txt")) << "either side's";
}

// 30 of 100, which is no whole fraction.
TEST_F(PrepareTest, TheVocabularyIsTrainedOnAtMostSoManyPairsOfTheTrainingText) {
  WriteLongText();
  Write("valid.en", kEnglish);
  Write("valid.de", kGerman);
  options_.valid = {{Path("valid.en"), Path("valid.de")}};
  options_.training.size = 90;
  options_.vocabulary_pairs = 30;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("on 30 pairs"));
  EXPECT_EQ(OpenCorpus("train").size(), 100) << "all of it is translated into ids";
}

// 10 of 101: the second text's share is less than one pair.
TEST_F(PrepareTest, TheVocabularySeesEachText) {
  WriteLongText();
  Write("one.en", "A man reads.\n");
  Write("one.de", "Ein Mann liest.\n");
  options_.train.push_back({Path("one.en"), Path("one.de")});
  options_.training.size = 90;
  options_.vocabulary_pairs = 10;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("on 10 pairs"));
}

TEST_F(PrepareTest, WordsAreCountedInAllOfTheTrainingText) {
  options_.training.algorithm = PieceAlgorithm::kWord;
  options_.vocabulary_pairs = 1;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(OpenCorpus("train").manifest().statistics.source_unknown, 0);
}

TEST_F(PrepareTest, AVocabularyOfRareWordsIsNamedWithASizeToTry) {
  std::string words;
  for (int i = 0; i < 400; ++i) absl::StrAppend(&words, "w", i, "\n");
  Write("train.en", words);
  Write("train.de", words);
  options_.training = {.algorithm = PieceAlgorithm::kWord, .size = 0};
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(),
              HasSubstr("has 800 tokens for 404 ids: most ids are too rare to be learnt; try --vocab-size 300"));
}

TEST_F(PrepareTest, AVocabularyThatCannotBeSavedIsAnError) {
  std::filesystem::create_directories(Path("out/vocabulary.model/in the way"));
  ExpectError({"vocabulary.model"});
}

TEST_F(PrepareTest, AnExchangedVocabularyIsNoticed) {
  ASSERT_TRUE(Run().ok());
  const Corpus train = OpenCorpus("train");
  Write("out/vocabulary.model", "the 3\ncat 2\n");
  const absl::Status status = LoadVocabularies(train).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("not the vocabulary that the corpus was made with"));
}

}  // namespace
}  // namespace hadal
