#include "runtime/data/language_tags.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/data/vocabulary_training.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

Vocabulary Trained() {
  std::vector<std::string> text;
  for (int i = 0; i < 50; ++i) text.push_back("a cat __de__ sees __ a dog _ e d");
  return *TrainVocabulary({.size = 38}, text);
}

TEST(LanguageTagsTest, AreBehindTheVocabularyAndNeverText) {
  const Vocabulary plain = Trained();
  const Vocabulary tagged = *AddLanguageTags(plain, {"de", "zh"});
  EXPECT_EQ(tagged.size(), plain.size() + 2);
  EXPECT_EQ(tagged.Id("__de__"), plain.size());
  EXPECT_EQ(tagged.Id("__zh__"), plain.size() + 1);
  const std::string text = "a cat __de__ sees";
  EXPECT_EQ(tagged.Encode(text), plain.Encode(text));
  EXPECT_EQ(tagged.Decode(tagged.Encode(text)), text);
  std::vector<int32_t> ids = tagged.Encode("a cat");
  ids.insert(ids.begin(), tagged.Id("__zh__"));
  EXPECT_EQ(tagged.Decode(ids), "a cat");
  EXPECT_EQ(tagged.Decode(std::vector<int32_t>{tagged.Id("__de__")}), "");
}

TEST(LanguageTagsTest, OnesThatAreThereKeepTheirIds) {
  const Vocabulary tagged = *AddLanguageTags(Trained(), {"de", "zh"});
  const Vocabulary more = *AddLanguageTags(tagged, {"fr", "zh", "de"});
  EXPECT_EQ(more.size(), tagged.size() + 1);
  EXPECT_EQ(more.Id("__zh__"), tagged.Id("__zh__"));
  EXPECT_EQ(more.Id("__fr__"), tagged.size());
  EXPECT_EQ(AddLanguageTags(more, {"de", "fr"})->contents(), more.contents());
}

TEST(LanguageTagsTest, LaterOnesTakeReservedIds) {
  const Vocabulary reserved = *AddLanguageTags(Trained(), {"de"}, /*reserved=*/2);
  const int32_t first = reserved.Id("__de__") + 1;
  EXPECT_EQ(reserved.size(), first + 2);
  EXPECT_TRUE(IsReservedTag(reserved.Token(first)));
  EXPECT_FALSE(IsLanguageTag(reserved.Token(first)));
  EXPECT_FALSE(IsLanguageTag("____")) << "of no language";
  const Vocabulary later = *AddLanguageTags(reserved, {"de", "fr"}, /*reserved=*/2);
  EXPECT_EQ(later.Id("__fr__"), first);
  EXPECT_EQ(later.Token(first + 1), reserved.Token(first + 1));
  EXPECT_EQ(later.size(), first + 3) << "two are reserved again";
  EXPECT_NE(later.Token(first + 2), later.Token(first + 1));
  const Vocabulary more = *AddLanguageTags(reserved, {"fr", "nl", "zh"});
  EXPECT_EQ(more.Id("__nl__"), first + 1);
  EXPECT_EQ(more.Id("__zh__"), first + 2);
}

TEST(LanguageTagsTest, WordsOfADictionaryCouldBeTags) {
  EXPECT_THAT(AddLanguageTags(*Vocabulary::FromTokens({"cat", "__de__"}), {"de"}).status().message(),
              HasSubstr("need a SentencePiece vocabulary"));
}

TEST(LanguageTagsTest, TheMaskTokenIsTheLastIdAndNoText) {
  const Vocabulary pieces = *AddMaskToken(Trained());
  EXPECT_EQ(pieces.Id(kMaskToken), Trained().size());
  EXPECT_EQ(AddMaskToken(pieces)->contents(), pieces.contents());
  for (const int32_t id : pieces.Encode("a <mask>")) EXPECT_NE(id, pieces.Id(kMaskToken));
  const Vocabulary words = *AddMaskToken(*Vocabulary::FromTokens({"cat", "dog"}));
  EXPECT_EQ(words.Id(kMaskToken), 6);
  EXPECT_EQ(words.size(), 7);
  EXPECT_EQ(AddMaskToken(*Vocabulary::Parse("cat 2\ndog 1", "d.txt"))->size(), 7) << "its last line has no end";
}

TEST(LanguageTagsTest, PresetsSayWhereTheyStand) {
  const Direction direction = *ParseDirection("en-zh");
  EXPECT_EQ(EncoderTag(LanguageTags::kNone, direction), "");
  EXPECT_EQ(DecoderTag(LanguageTags::kNone, direction), "");
  EXPECT_EQ(EncoderTag(LanguageTags::kDeepnet, direction), "__zh__");
  EXPECT_EQ(DecoderTag(LanguageTags::kDeepnet, direction), "");
  EXPECT_EQ(EncoderTag(LanguageTags::kM2m100, direction), "__en__");
  EXPECT_EQ(DecoderTag(LanguageTags::kM2m100, direction), "__zh__");
}

TEST(LanguageTagsTest, ADirectionIsTwoCodes) {
  const Direction flores = *ParseDirection("eng_Latn-deu_Latn");
  EXPECT_EQ(flores.source, "eng_Latn");
  EXPECT_EQ(flores.target, "deu_Latn");
  const std::string long_code(33, 'a');
  for (const std::string& wrong : std::vector<std::string>{"", "en", "en-", "-de", "en-de-fr", "en-d e", "en/de-x",
                                                           long_code + "-de", "en-" + long_code}) {
    EXPECT_THAT(ParseDirection(wrong).status().message(), HasSubstr("is no direction")) << wrong;
  }
  EXPECT_THAT(ParseDirection("en-en").status().message(),
              HasSubstr("has one language; give the sides different names"));
}

TEST(LanguageTagsTest, APieceThatTextCanSpellIsNoTag) {
  // A serialised piece as AddLanguageTags writes it, but of the type that text is searched for: USER_DEFINED (4).
  const std::string piece("\x0A\x06__de__\x15\0\0\0\0\x18\x04", 15);
  const Vocabulary spelled = *Vocabulary::Parse(Trained().contents() + "\x0A\x0F" + piece, "v.model");
  ASSERT_NE(spelled.Id("__de__"), kUnknownToken);
  EXPECT_THAT(std::string(AddLanguageTags(spelled, {"de"}).status().message()), HasSubstr("is a piece of text"));
}

}  // namespace
}  // namespace hadal
