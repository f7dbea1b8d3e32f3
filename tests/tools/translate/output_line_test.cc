#include "tools/translate/output_line.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/data/vocabulary_training.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

Hypothesis Say(std::vector<int32_t> tokens, double score) {
  Hypothesis hypothesis{.tokens = std::move(tokens), .score = score};
  for (size_t t = 0; t <= hypothesis.tokens.size(); ++t)
    hypothesis.token_log_probabilities.push_back(-0.5f * static_cast<float>(t));
  return hypothesis;
}

TEST(OutputLineTest, TextHasNumbersAndScoresAsAsked) {
  const Vocabulary vocabulary = *Vocabulary::FromTokens({"a@@", "b", "c"});
  const std::vector<Hypothesis> two = {Say({4, 5}, -1.5), Say({6}, -2)};
  const auto text = [&](const OutputForm& form, const std::vector<Hypothesis>& hypotheses) {
    return FormatOutput(form, vocabulary, 7, "not read", hypotheses);
  };
  EXPECT_EQ(text({}, two), "a@@ b\n");
  EXPECT_EQ(text({.joining = PieceJoining::kBpe}, two), "ab\n");
  EXPECT_EQ(text({.nbest = 3, .scores = true}, two), "7\t-1.500000\ta@@ b\n7\t-2.000000\tc\n");
  EXPECT_EQ(text({}, {}), "\n");
  EXPECT_EQ(text({.nbest = 2, .scores = true}, {}), "7\t\t\n");
}

// Vocabularies with byte fallback can write a line's end. Here it is a piece, at the end of the model's file.
TEST(OutputLineTest, TextHasNoLineEndsInside) {
  const Vocabulary trained = *TrainVocabulary({.size = 40}, {"the old cat sat", "a dog", "the mat"});
  const std::string pieces("\x0A\x08\x0A\x01\n\x15\0\0\0\0\x0A\x08\x0A\x01\r\x15\0\0\0\0", 20);
  const Vocabulary vocabulary = *Vocabulary::Parse(trained.contents() + pieces, "x.model");
  const std::vector<int32_t> words = vocabulary.Encode("a dog");
  std::vector<int32_t> tokens = words;
  tokens.insert(tokens.end(), {vocabulary.Id("\n"), vocabulary.Id("\r")});
  tokens.insert(tokens.end(), words.begin(), words.end());
  ASSERT_EQ(vocabulary.Decode(tokens), "a dog\n\r a dog");
  const std::vector<Hypothesis> hypotheses = {Say(tokens, -1)};
  EXPECT_EQ(FormatOutput({}, vocabulary, 1, "", hypotheses), "a dog   a dog\n");
  EXPECT_EQ(Json::parse(FormatOutput({.json = true}, vocabulary, 1, "", hypotheses))["hypotheses"][0]["text"],
            "a dog\n\r a dog");
}

TEST(OutputLineTest, JsonIsALineThatParsesToWhatWentIn) {
  const std::string nasty = "\"\\\x01\x7F/\xF0\x9F\x98\x80</script>";
  const Vocabulary vocabulary = *Vocabulary::FromTokens({nasty, "\xC3\xA4"});
  const std::string line =
      FormatOutput({.nbest = 2, .json = true, .joining = PieceJoining::kBpe}, vocabulary, 12,
                   nasty + "\t\xE2\x80\xA8\xFF", {{Say({4, 5}, -0.1), Say({3}, -1e-9), Say({5}, -3)}});
  ASSERT_EQ(line.find('\n'), line.size() - 1);
  const Json json = Json::parse(line);
  EXPECT_EQ(json["line"], 12);
  EXPECT_EQ(json["source"], nasty + "\t\xE2\x80\xA8\xEF\xBF\xBD") << "what is not UTF-8";
  ASSERT_EQ(json["hypotheses"].size(), 2u);
  const Json& first = json["hypotheses"][0];
  EXPECT_EQ(first["text"], nasty + " \xC3\xA4");
  EXPECT_EQ(first["tokens"], Json({nasty, "\xC3\xA4", "</s>"}));
  EXPECT_EQ(first["score"], -0.1);
  EXPECT_EQ(first["log_probabilities"], Json({0.0, -0.5, -1.0}));
  EXPECT_EQ(json["hypotheses"][1]["score"], -1e-9);
  const std::string none = FormatOutput({.json = true, .input_name = "prompt"}, vocabulary, 1, "", {});
  EXPECT_EQ(none, "{\"line\":1,\"prompt\":\"\",\"hypotheses\":[]}\n");
}

}  // namespace
}  // namespace hadal
