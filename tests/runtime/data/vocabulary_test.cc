#include "runtime/data/vocabulary.h"

#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/crc32c.h"
#include "runtime/data/piece_model.h"

namespace hadal {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
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
  EXPECT_EQ(bpe.Decode(ids, PieceJoining::kSpaces), "lo@@ w@@ er house");
  EXPECT_EQ(bpe.Decode(ids, PieceJoining::kBpe), "lower house");
  EXPECT_EQ(bpe.Decode(ids), "lower house") << "the dictionary is one of pieces";
  EXPECT_EQ(bpe.Decode(std::vector<int32_t>{4, 5}, PieceJoining::kBpe), "low");  // a word cut off at its end

  const Vocabulary pieces = *Vocabulary::FromTokens({"▁lo", "w", "▁house"});
  EXPECT_EQ(pieces.Decode(std::vector<int32_t>{4, 5, 6}, PieceJoining::kSentencePiece), "low house");
  EXPECT_EQ(pieces.Decode(std::vector<int32_t>{4, 5, 6}), "low house");
  EXPECT_EQ(pieces.Decode({}), "");

  std::vector<std::string> words(40, "");
  for (size_t i = 0; i < words.size(); ++i) words[i] = absl::StrCat("w", i);
  words[0] = "e@@";
  const Vocabulary mostly_words = *Vocabulary::FromTokens(words);
  EXPECT_EQ(mostly_words.Decode(std::vector<int32_t>{4, 5, kUnknownToken}), "e@@ w1 <unk>") << "one may be text";
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

TEST(VocabularyTest, ADictionaryMayBeginWithABrace) {
  for (const char* token : {"{", "{}", "{\""}) {
    for (const char* end : {"\n", "\r\n"}) {
      EXPECT_EQ(Vocabulary::Parse(absl::StrCat(token, " 100", end, "b 100", end), "d.txt").value().Id(token), 4);
    }
  }
}

TEST(VocabularyTest, BadDictionariesNameTheLine) {
  EXPECT_THAT(Message(Vocabulary::Parse("a 1\nb\n", "d.txt")), HasSubstr("d.txt, line 2"));
  EXPECT_THAT(Message(Vocabulary::Parse("a 1\n\nb 1\n", "d.txt")), HasSubstr("line 2"));
  EXPECT_THAT(Message(Vocabulary::Parse("a 1\nb x\n", "d.txt")), HasSubstr("'x' is not a number"));
  EXPECT_THAT(Message(Vocabulary::Parse("a 1\na 1\n", "d.txt")), HasSubstr("'a' already has the id 4"));
  EXPECT_THAT(Message(Vocabulary::Parse("<pad> 1\n", "d.txt")), HasSubstr("'<pad>' already has the id 1, as in every"));
  EXPECT_THAT(Message(Vocabulary::Parse("a b 1\n", "d.txt")), HasSubstr("space inside"));
  EXPECT_THAT(Message(Vocabulary::Parse("", "d.txt")), HasSubstr("is empty"));
  EXPECT_THAT(Message(Vocabulary::FromTokens({"a", "a"})), HasSubstr("already"));
  EXPECT_THAT(Message(Vocabulary::FromTokens({""})), HasSubstr("line 1"));
  EXPECT_EQ(Vocabulary::Load("/nonexistent/dict.txt").status().code(), absl::StatusCode::kNotFound);
}

TEST(VocabularyTest, ATokenizerKeepsItsIds) {
  const auto parse = [](const std::string& vocab, const std::string& added) {
    return Vocabulary::Parse("{\"model\": {\"vocab\": " + vocab + "}, \"added_tokens\": [" + added + "]}", "t.json");
  };
  const auto token = [](const std::string& content, int id) {
    return "{\"content\": \"" + content + "\", \"id\": " + std::to_string(id) + "}";
  };
  const std::string bpe = R"({"<s>": 0, "b": 2, "a": 1})";
  const Vocabulary added = *parse(bpe, token("<s>", 0) + ", " + token("</s>", 3));
  EXPECT_EQ(added.kind(), VocabularyKind::kTokenizer);
  EXPECT_EQ(added.size(), 4);
  EXPECT_EQ(added.Token(2), "b");
  EXPECT_EQ(parse(bpe, token("x", 3) + ", " + token("y", 4))->Id("y"), 4);
  EXPECT_EQ(added.Id("</s>"), 3);
  EXPECT_EQ(added.FileName("vocabulary"), "tokenizer.json");
  EXPECT_EQ(added.Decode(std::vector<int32_t>{1, 3}), "a </s>");
  EXPECT_EQ(added.Decode(std::vector<int32_t>{1, 2}, PieceJoining::kSentencePiece), "ab");
  EXPECT_EQ(parse(R"([["<unk>", 0], ["a", -1.5]])", "")->Id("a"), 1) << "Unigram";
  EXPECT_THAT(Message(parse(bpe, token("</s>", 7))),
              HasSubstr("t.json: the added token \"</s>\" has the id 7, and tokenizers gives it 3"));
  EXPECT_THAT(Message(parse(bpe, token("a", 2))), HasSubstr("tokenizers gives it 1"));
  EXPECT_EQ(parse(R"({"a": 5, "b": 0})", "")->size(), 6) << "ids between them are of no token";
  for (const char* no_id : {R"({"a": "b"})", R"({"a": -1})", R"({"a": 16777216})"}) {
    EXPECT_THAT(Message(parse(no_id, "")), HasSubstr("no id for \"a\""));
  }
  EXPECT_THAT(Message(parse(R"([["a", 0], [1, 0]])", "")), HasSubstr("an entry that is no piece"));
  EXPECT_THAT(Message(parse(bpe, R"({"content": "c"})")), HasSubstr("an added token without content or id"));
}

TEST(VocabularyTest, OtherProgramsVocabulariesAreNamedWithTheRemedy) {
  EXPECT_THAT(Message(Vocabulary::Parse("\x1F\x8B\x08\x01", "d")), HasSubstr("d is compressed with gzip"));
  EXPECT_THAT(Message(Vocabulary::Parse("version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "d")),
              HasSubstr("`git lfs pull`"));
  for (const char* json : {"{\n\"a\": 1\n}\n", "[\"a\"]"}) {
    EXPECT_THAT(Message(Vocabulary::Parse(json, "d")), HasSubstr("d is JSON"));
  }
  EXPECT_THAT(Message(Vocabulary::Parse("<unk>\t0\n▁the\t-3.2\n", "d")), HasSubstr("give the model itself (.model)"));
  EXPECT_THAT(Message(Vocabulary::Parse("</s>: 0\n<unk>: 1\nthe: 2\n", "d")), HasSubstr("a YAML vocabulary"));
  EXPECT_TRUE(Vocabulary::FromTokens({"a:"}).ok()) << "one may be text";
}

// SentencePiece models that others trained, whose special pieces have other ids, or are not there: they are renumbered
// to hadal's.
const std::vector<std::string> kSentences = {"the cat sat on the mat", "the dog sat on the cat", "a dog on a mat"};

struct SpecialIds {
  int unknown, bos, eos, pad;  // -1: there is no such piece
};

std::string ModelWith(const SpecialIds& ids) {
  std::string contents, error;
  const std::unordered_map<std::string, std::string> arguments = {{"model_type", "bpe"},
                                                                  {"vocab_size", "30"},
                                                                  {"hard_vocab_limit", "false"},
                                                                  {"minloglevel", "3"},
                                                                  {"num_threads", "1"},
                                                                  {"unk_id", absl::StrCat(ids.unknown)},
                                                                  {"bos_id", absl::StrCat(ids.bos)},
                                                                  {"eos_id", absl::StrCat(ids.eos)},
                                                                  {"pad_id", absl::StrCat(ids.pad)}};
  EXPECT_TRUE(TrainPieceModel(arguments, kSentences, contents, error)) << error;
  return contents;
}

class ForeignModelTest : public ::testing::TestWithParam<SpecialIds> {};

TEST_P(ForeignModelTest, IsRenumbered) {
  const std::string contents = ModelWith(GetParam());
  const absl::StatusOr<Vocabulary> vocabulary = Vocabulary::Parse(contents, "x.model");
  EXPECT_EQ(vocabulary->kind(), VocabularyKind::kSentencePiece);
  EXPECT_EQ(vocabulary->contents(), contents) << "the file stays as it was";

  // The four special ones, then every other piece in the model's order.
  std::string error;
  const std::unique_ptr<const PieceModel> pieces = PieceModel::Parse(contents, error);
  ASSERT_NE(pieces, nullptr) << error;
  std::vector<std::string> expected = {"<s>", "<pad>", "</s>", "<unk>"};
  const SpecialIds& ids = GetParam();
  for (int piece = 0; piece < pieces->size(); ++piece) {
    const bool special = piece == ids.unknown || piece == ids.bos || piece == ids.eos || piece == ids.pad;
    if (!special) expected.push_back(pieces->Piece(piece));
  }
  std::vector<std::string> tokens;
  for (int32_t id = 0; id < vocabulary->size(); ++id) tokens.push_back(vocabulary->Token(id));
  EXPECT_EQ(tokens, expected);
  for (size_t id = 0; id < expected.size(); ++id) EXPECT_EQ(vocabulary->Id(expected[id]), static_cast<int32_t>(id));
}

TEST_P(ForeignModelTest, TextRoundTripsAndSpecialTokensAreNoText) {
  const Vocabulary vocabulary = *Vocabulary::Parse(ModelWith(GetParam()), "x.model");
  for (const std::string& sentence : kSentences) {
    std::vector<int32_t> ids = vocabulary.Encode(sentence);
    EXPECT_THAT(ids, Each(Ge(kSpecialTokens)));
    EXPECT_EQ(vocabulary.Decode(ids), sentence);
    for (const int32_t special : {kBosToken, kPadToken, kEosToken}) {
      ids.push_back(special);
      ids.insert(ids.begin(), special);
    }
    EXPECT_EQ(vocabulary.Decode(ids), sentence);
  }
  EXPECT_THAT(vocabulary.Encode("\xC3\x9F"), ::testing::Contains(kUnknownToken)) << "a character it never saw";
  EXPECT_THAT(vocabulary.Decode(std::vector<int32_t>{kUnknownToken}), HasSubstr("\xE2\x81\x87"))
      << "SentencePiece's sign for what is unknown";
}

INSTANTIATE_TEST_SUITE_P(
    Ids, ForeignModelTest,
    ::testing::Values(SpecialIds{.unknown = 0, .bos = 1, .eos = 2, .pad = -1},  // SentencePiece's own
                      SpecialIds{.unknown = 0, .bos = -1, .eos = -1, .pad = -1},
                      SpecialIds{.unknown = 3, .bos = 1, .eos = 2, .pad = 0},
                      SpecialIds{.unknown = 2, .bos = -1, .eos = 1, .pad = 0}));

TEST(SentencePieceVocabulary, ADamagedModelIsNamedWithTheLibrarysWords) {
  const std::string contents = ModelWith({.unknown = 0, .bos = 1, .eos = 2, .pad = -1});
  for (const std::string& damaged : {contents.substr(0, contents.size() / 2), std::string("\nnot a model")}) {
    const absl::Status status = Vocabulary::Parse(damaged, "x.model").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    for (const char* said : {"x.model is not a SentencePiece model, or a damaged one (", "copy or train it again"}) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(said));
    }
  }
}

TEST(SentencePieceVocabularyDeathTest, IdsOutsideAreOurOwnFault) {
  const Vocabulary vocabulary = *Vocabulary::Parse(ModelWith({.unknown = 0, .bos = 1, .eos = 2, .pad = -1}), "x.model");
  EXPECT_DEATH(vocabulary.Decode(std::vector<int32_t>{vocabulary.size()}), "");
  EXPECT_DEATH(vocabulary.Decode(std::vector<int32_t>{-1}), "");
}

}  // namespace
}  // namespace hadal
