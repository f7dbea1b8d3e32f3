#include "runtime/data/vocabulary_training.h"

#include "gmock/gmock.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kSentences = {
    "The old man reads a long letter.",      "Der alte Mann liest einen langen Brief.",
    "We have not seen the green house.",     "Wir haben das grüne Haus nicht gesehen.",
    "The children play behind the garden.",  "Die Kinder spielen hinter dem Garten.",
    "Does the teacher know the new answer?", "Kennt die Lehrerin die neue Antwort?"};

std::string Message(const absl::StatusOr<Vocabulary>& vocabulary) { return std::string(vocabulary.status().message()); }

class VocabularyTrainingTest : public ::testing::TestWithParam<PieceAlgorithm> {};

TEST_P(VocabularyTrainingTest, TextRoundTripsAndIdsAreOurs) {
  const int32_t size = GetParam() == PieceAlgorithm::kBpe ? 80 : 60;
  const absl::StatusOr<Vocabulary> vocabulary = TrainVocabulary({.algorithm = GetParam(), .size = size}, kSentences);
  EXPECT_EQ(vocabulary->kind(), VocabularyKind::kSentencePiece);
  EXPECT_EQ(vocabulary->size(), size);
  EXPECT_EQ(vocabulary->Token(kEosToken), "</s>");
  EXPECT_EQ(vocabulary->extension(), ".model");
  for (const std::string& sentence : kSentences) {
    const std::vector<int32_t> ids = vocabulary->Encode(sentence);
    EXPECT_FALSE(ids.empty());
    for (const int32_t id : ids) EXPECT_GE(id, kSpecialTokens) << vocabulary->Token(id);
    EXPECT_EQ(vocabulary->Decode(ids), sentence);
    EXPECT_EQ(vocabulary->Decode(ids, PieceJoining::kSentencePiece), sentence);
    std::vector<int32_t> with_special = ids;
    with_special.push_back(kEosToken);
    with_special.push_back(kPadToken);
    EXPECT_EQ(vocabulary->Decode(with_special), sentence);
  }
}

// In the file: the fields model_type (3: 1 is unigram, 2 is BPE) and vocab_size (4) of its trainer_spec.
TEST_P(VocabularyTrainingTest, TheModelIsOfTheKindThatWasAskedFor) {
  const std::string contents(TrainVocabulary({.algorithm = GetParam(), .size = 60}, kSentences)->contents());
  const auto fields = [](char type) { return std::string{0x18, type, 0x20, 60}; };
  const bool bpe = GetParam() == PieceAlgorithm::kBpe;
  EXPECT_NE(contents.find(fields(bpe ? 2 : 1)), std::string::npos);
  EXPECT_EQ(contents.find(fields(bpe ? 1 : 2)), std::string::npos);
}

TEST_P(VocabularyTrainingTest, UnseenCharactersAreUnknownAndBlankIsNothing) {
  const Vocabulary vocabulary = *TrainVocabulary({.algorithm = GetParam(), .size = 60}, kSentences);
  const std::vector<int32_t> ids = vocabulary.Encode("Ж");
  EXPECT_THAT(ids, ::testing::Contains(kUnknownToken));
  EXPECT_TRUE(vocabulary.Encode("").empty());
  EXPECT_TRUE(vocabulary.Encode("  ").empty());
  for (const int32_t id : vocabulary.Encode("</s> <pad>")) EXPECT_GE(id, kUnknownToken);
}

TEST_P(VocabularyTrainingTest, SameSentencesGiveTheSameBytes) {
  const VocabularyTraining options = {.algorithm = GetParam(), .size = 60};
  EXPECT_EQ(TrainVocabulary(options, kSentences)->contents(), TrainVocabulary(options, kSentences)->contents());
}

TEST_P(VocabularyTrainingTest, ALoadedModelEqualsTheTrainedOne) {
  const Vocabulary trained = *TrainVocabulary({.algorithm = GetParam(), .size = 60}, kSentences);
  const TemporaryDirectory directory;
  const std::string path = directory / "vocabulary.model";
  ASSERT_TRUE(trained.Save(path).ok());
  const Vocabulary loaded = *Vocabulary::Load(path);
  EXPECT_EQ(loaded.contents(), trained.contents());
  EXPECT_EQ(loaded.crc32c(), trained.crc32c());
  EXPECT_EQ(loaded.Encode(kSentences[3]), trained.Encode(kSentences[3]));
}

TEST_P(VocabularyTrainingTest, TooLargeNamesTheLargestAndThatOneWorks) {
  const std::vector<std::string> tiny = {"the cat sat", "the cat"};
  VocabularyTraining options = {.algorithm = GetParam(), .size = 5000};
  const std::string message = Message(TrainVocabulary(options, tiny));
  ASSERT_THAT(message, HasSubstr("at most "));
  options.size = std::stoi(message.substr(message.find("at most ") + 8));
  EXPECT_LT(options.size, 5000);
  const absl::StatusOr<Vocabulary> largest = TrainVocabulary(options, tiny);
  EXPECT_EQ(largest->Decode(largest->Encode("the cat sat")), "the cat sat");
}

TEST_P(VocabularyTrainingTest, TooSmallNamesTheSmallestAndThatOneWorks) {
  VocabularyTraining options = {.algorithm = GetParam(), .size = 10};
  const std::string message = Message(TrainVocabulary(options, kSentences));
  ASSERT_THAT(message, HasSubstr("alone need "));
  options.size = std::stoi(message.substr(message.find("alone need ") + 11));
  EXPECT_TRUE(TrainVocabulary(options, kSentences).ok());
}

// SentencePiece would end the process at a word of more than 65,535 characters (a line of a text without spaces is
// one), and would leave a line of several megabytes out without a word.
TEST_P(VocabularyTrainingTest, WordsAndLinesMayBeOfAnyLength) {
  struct Case {
    std::string part;
    int times;
    int32_t size;
    std::string other_line, word;
  };
  for (const Case& c :
       {Case{"üx", 40'000, 18, "a short line", "üx"}, {"the zebra ", 200'000, 14, "the cat", "zebra"}}) {
    std::string line = " ";
    for (int i = 0; i < c.times; ++i) line += c.part;
    const auto vocabulary = TrainVocabulary({.algorithm = GetParam(), .size = c.size}, {line, c.other_line});
    EXPECT_THAT(vocabulary->Encode(c.word), ::testing::Not(::testing::Contains(kUnknownToken)));
    EXPECT_EQ(vocabulary->Id("\uFFFD"), kUnknownToken) << "a character was cut";
  }
}

TEST_P(VocabularyTrainingTest, NoTextIsAnError) {
  const VocabularyTraining options = {.algorithm = GetParam(), .size = 60};
  EXPECT_THAT(Message(TrainVocabulary(options, {})), HasSubstr("no text"));
  EXPECT_THAT(Message(TrainVocabulary(options, {"", "  "})), HasSubstr("no text"));
}

INSTANTIATE_TEST_SUITE_P(Algorithms, VocabularyTrainingTest,
                         ::testing::Values(PieceAlgorithm::kBpe, PieceAlgorithm::kUnigram));

// 2 MB of six words: training would take seconds, on more text minutes.
TEST(VocabularyTrainingOptionsTest, ASizeFarTooLargeForALargeTextIsRefusedBeforeTraining) {
  const std::vector<std::string> sentences(80'000, "the dog eats the large fish");
  VocabularyTraining options{.size = 8000};
  EXPECT_THAT(std::string(TrainVocabulary(options, sentences).status().message()),
              HasSubstr("8000 ids is too large for this text: its distinct words give fewer than 568;"));
}

TEST(VocabularyTrainingOptionsTest, BadOptionsAreRefused) {
  EXPECT_TRUE(CheckVocabularyTraining({.size = 5}).ok());
  EXPECT_FALSE(CheckVocabularyTraining({.size = 4}).ok());
  EXPECT_THAT(Message(TrainVocabulary({.size = 4}, kSentences)), HasSubstr("no room"));
  EXPECT_THAT(Message(TrainVocabulary({.size = 60, .character_coverage = 1.5}, kSentences)), HasSubstr("1.5"));
  for (const double few : {0.0, 0.97}) {
    EXPECT_THAT(Message(TrainVocabulary({.size = 60, .character_coverage = few}, kSentences)),
                HasSubstr("outside [0.98, 1]"));
  }
  EXPECT_THAT(Message(TrainVocabulary({.size = 60, .normalization = "nfkd"}, kSentences)), HasSubstr("nmt_nfkc"));
}

// fairseq's order: by count, then by bytes; text that spells special tokens has no word of it.
TEST(WordVocabularyTest, IsSortedByFrequency) {
  const std::vector<std::string> text = {"b a\tc b", "<unk> a b  é </s>", "c d <unk>"};
  VocabularyTraining options{.algorithm = PieceAlgorithm::kWord, .size = 0};
  EXPECT_EQ(TrainVocabulary(options, text)->contents(), "b 3\na 2\nc 2\nd 1\né 1\n");
  options.least_count = 2;
  EXPECT_EQ(TrainVocabulary(options, text)->contents(), "b 3\na 2\nc 2\n");
  options.size = 6;
  const Vocabulary two = *TrainVocabulary(options, text);
  EXPECT_EQ(two.contents(), "b 3\na 2\n");
  EXPECT_EQ(two.Encode("a c b <unk>"), (std::vector<int32_t>{5, kUnknownToken, 4, kUnknownToken}));
  options.least_count = 4;
  EXPECT_EQ(TrainVocabulary(options, text).status().message(), "no word occurs 4 times; lower the least count");
  // A byte order mark within a word, of files that were joined, is the word's.
  const Vocabulary marked =
      *TrainVocabulary({.algorithm = PieceAlgorithm::kWord, .size = 0}, {"\uFEFFthe\u00a0a \uFEFFthe"});
  EXPECT_EQ(marked.Encode("a \uFEFFthe"), (std::vector<int32_t>{5, 4}));
}

}  // namespace
}  // namespace hadal
