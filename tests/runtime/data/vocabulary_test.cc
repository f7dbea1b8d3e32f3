#include "runtime/data/vocabulary.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/crc32c.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Message(const absl::StatusOr<Vocabulary>& vocabulary) { return std::string(vocabulary.status().message()); }

TEST(VocabularyTest, SpecialTokensHaveFairseqsIds) {
  const Vocabulary vocabulary = *Vocabulary::FromTokens({"a", "b"});
  EXPECT_EQ(vocabulary.kind(), VocabularyKind::kDictionary);
  EXPECT_EQ(vocabulary.size(), 6);
  EXPECT_EQ(vocabulary.Token(kBosToken), "<s>");
  EXPECT_EQ(vocabulary.Token(kPadToken), "<pad>");
  EXPECT_EQ(vocabulary.Token(kEosToken), "</s>");
  EXPECT_EQ(vocabulary.Token(kUnknownToken), "<unk>");
  EXPECT_EQ(vocabulary.Token(4), "a");
  EXPECT_EQ(vocabulary.Id("b"), 5);
  EXPECT_EQ(vocabulary.Id("c"), kUnknownToken);
}

TEST(VocabularyTest, DictionaryEncodesBetweenSpaces) {
  const Vocabulary vocabulary = *Vocabulary::FromTokens({"the", "cat", "ä"});
  EXPECT_THAT(vocabulary.Encode("the cat"), ElementsAre(4, 5));
  EXPECT_THAT(vocabulary.Encode("  the\tdog ä  \r\n"), ElementsAre(4, kUnknownToken, 6));
  EXPECT_THAT(vocabulary.Encode("</s> cat <pad> <s>"), ElementsAre(kUnknownToken, 5, kUnknownToken, kUnknownToken))
      << "text cannot spell a special token";
  EXPECT_THAT(vocabulary.Encode(""), IsEmpty());
  EXPECT_THAT(vocabulary.Encode(" \t "), IsEmpty());
  // No-break, ideographic, line separator: fairseq splits at Unicode's white space.
  EXPECT_THAT(vocabulary.Encode("the\u00a0cat\u3000ä\u2028the \u3000"), ElementsAre(4, 5, 6, 4));
}

TEST(VocabularyTest, DecodeJoinsAsAsked) {
  const Vocabulary bpe = *Vocabulary::FromTokens({"lo@@", "w@@", "er", "house"});
  const std::vector<int32_t> ids = {kBosToken, 4, 5, 6, 7, kEosToken, kPadToken};
  EXPECT_EQ(bpe.Decode(ids), "lo@@ w@@ er house");
  EXPECT_EQ(bpe.Decode(ids, PieceJoining::kBpe), "lower house");
  EXPECT_EQ(bpe.Decode(std::vector<int32_t>{4, 5}, PieceJoining::kBpe), "low");  // a word cut off at its end

  const Vocabulary pieces = *Vocabulary::FromTokens({"▁lo", "w", "▁house"});
  EXPECT_EQ(pieces.Decode(std::vector<int32_t>{4, 5, 6}, PieceJoining::kSentencePiece), "low house");
  EXPECT_EQ(pieces.Decode(std::vector<int32_t>{4, kUnknownToken}), "▁lo <unk>");
  EXPECT_EQ(pieces.Decode({}), "");
}

TEST(VocabularyTest, DictionaryFileRoundTrips) {
  const std::string text = "the 120\n, 99\nder 7\nmadeupword0000 0\n";
  const Vocabulary vocabulary = *Vocabulary::Parse(text, "dict.txt");
  EXPECT_EQ(vocabulary.size(), 8);
  EXPECT_EQ(vocabulary.Id(","), 5);
  EXPECT_EQ(vocabulary.contents(), text);
  EXPECT_EQ(vocabulary.crc32c(), Crc32c(text.data(), text.size()));
  EXPECT_EQ(vocabulary.extension(), ".txt");
}

TEST(VocabularyTest, DictionaryTakesByteOrderMarkCrLfAndOverwrite) {
  const Vocabulary vocabulary = *Vocabulary::Parse("\uFEFFa 3\r\n<unk> 2 #fairseq:overwrite\r\nb 1\r\n", "d.txt");
  EXPECT_EQ(vocabulary.size(), 7);
  EXPECT_EQ(vocabulary.Id("a"), 4);
  EXPECT_EQ(vocabulary.Id("<unk>"), 5);
  EXPECT_EQ(vocabulary.Id("b"), 6);
}

TEST(VocabularyTest, BadDictionariesNameTheLine) {
  EXPECT_THAT(Message(Vocabulary::Parse("a 1\nb\n", "d.txt")), HasSubstr("d.txt, line 2"));
  EXPECT_THAT(Message(Vocabulary::Parse("a 1\n\nb 1\n", "d.txt")), HasSubstr("line 2"));
  EXPECT_THAT(Message(Vocabulary::Parse("a 1\nb x\n", "d.txt")), HasSubstr("'x' is not a number"));
  EXPECT_THAT(Message(Vocabulary::Parse("a 1\na 1\n", "d.txt")), HasSubstr("'a' already has the id 4"));
  EXPECT_THAT(Message(Vocabulary::Parse("<pad> 1\n", "d.txt")), HasSubstr("'<pad>' already has the id 1"));
  EXPECT_THAT(Message(Vocabulary::Parse("a b 1\n", "d.txt")), HasSubstr("space inside"));
  EXPECT_THAT(Message(Vocabulary::Parse("", "d.txt")), HasSubstr("is empty"));
  EXPECT_THAT(Message(Vocabulary::FromTokens({"a", "a"})), HasSubstr("already"));
  EXPECT_THAT(Message(Vocabulary::FromTokens({""})), HasSubstr("line 1"));
  EXPECT_EQ(Vocabulary::Load("/nonexistent/dict.txt").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hadal
