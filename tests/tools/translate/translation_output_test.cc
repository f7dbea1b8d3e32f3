#include "tools/translate/translation_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/data/vocabulary_training.h"
#include "runtime/files.h"
#include "tests/support/temporary_directory.h"
#include "tools/translate/leading_tokens.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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
  EXPECT_EQ(text({}, two), "ab\n");
  EXPECT_EQ(text({.joining = PieceJoining::kSpaces}, two), "a@@ b\n");
  EXPECT_EQ(text({.hidden_tokens = 1}, two), "b\n");
  const std::string line = text({.json = true, .end_token = 6}, two);
  EXPECT_EQ(Json::parse(line)["hypotheses"][0]["tokens"], Json({"a@@", "b", "c"})) << "the model's end";
  EXPECT_EQ(text({.nbest = 3, .scores = true}, two), "7\t-1.500000\tab\n7\t-2.000000\tc\n");
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

class OutputFileTest : public ::testing::Test {
 protected:
  // Writes `text` to `path`; without `finish` as a command that fails then.
  static absl::Status Write(const std::string& path, const std::string& text, bool finish = true) {
    OutputFile file(std::cout);
    if (absl::Status status = file.Open(path, {}, /*overwrite=*/true); !status.ok()) return status;
    file.stream() << text << std::flush;
    return finish ? file.Finish() : absl::OkStatus();
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "out";
};

TEST_F(OutputFileTest, ItIsWholeOrNotThere) {
  ASSERT_TRUE(Write(path_, "", /*finish=*/false).ok());
  EXPECT_TRUE(ListDirectory(directory_.path())->empty());
  ASSERT_TRUE(Write(path_, "a\n", /*finish=*/false).ok());
  EXPECT_FALSE(PathExists(path_));
  EXPECT_EQ(Contents(path_ + ".partial"), "a\n");
  ASSERT_TRUE(Write(path_, "b\n").ok());
  EXPECT_EQ(Contents(path_), "b\n");
  EXPECT_FALSE(PathExists(path_ + ".partial"));
  ASSERT_TRUE(Write(path_, "", /*finish=*/false).ok());
  EXPECT_EQ(Contents(path_), "b\n");
  EXPECT_EQ(Write(directory_ / "nowhere/out", "c\n").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Write(directory_.path(), "c\n").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(OutputFileTest, WhatIsThereIsReplacedOnlyIfAsked) {
  for (const std::string& path : {path_, path_ + ".partial"}) {
    SetContents(path, "old\n");
    OutputFile file(std::cout);
    EXPECT_THAT(std::string(file.Open(path_, {}, /*overwrite=*/false).message()), HasSubstr("--overwrite"));
    EXPECT_EQ(Contents(path), "old\n");
    SetContents(path, "");
    EXPECT_TRUE(file.Open(path_, {}, /*overwrite=*/false).ok()) << "empty";
    EXPECT_EQ(OutputFile(std::cout).Open(path_, {}, /*overwrite=*/true).code(), absl::StatusCode::kAborted)
        << "two at once";
    std::filesystem::remove(path);
  }
}

TEST_F(OutputFileTest, AnOpenFileIsWrittenAsItIs) {
  const int open_file = open(path_.c_str(), O_WRONLY | O_CREAT, 0666);
  std::filesystem::create_symlink(absl::StrCat("/proc/self/fd/", open_file), directory_ / "stdout");
  ASSERT_TRUE(Write(directory_ / "stdout", "a\n").ok());
  struct stat of_file, of_path;
  ASSERT_EQ(fstat(open_file, &of_file) + stat(path_.c_str(), &of_path), 0);
  EXPECT_EQ(of_file.st_ino, of_path.st_ino);
  ASSERT_TRUE(Write(directory_ / "stdout", "b\n").ok());
  EXPECT_EQ(Contents(path_), "a\nb\n") << "behind what a shell has written there";
  EXPECT_TRUE(Write("/dev/null", "a\n").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  close(open_file);
}

TEST_F(OutputFileTest, NoInputIsEmptied) {
  SetContents(path_ + ".partial", "an input\n");
  OutputFile file(std::cout);
  EXPECT_EQ(file.Open(path_, {path_ + ".partial"}, /*overwrite=*/true).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Contents(path_ + ".partial"), "an input\n");
}

TEST(ForcedTokensTest, TokensOfADictionaryAndItsTags) {
  const Vocabulary vocabulary = *Vocabulary::FromTokens({"__de__", "__x", "Das", "Haus", "deu_Latn"});
  EXPECT_THAT(*ForcedTokens(vocabulary, ""), IsEmpty());
  EXPECT_THAT(*ForcedTokens(vocabulary, "  __de__"), ElementsAre(4));
  EXPECT_THAT(*ForcedTokens(vocabulary, "deu_Latn Das Haus"), ElementsAre(8, 6, 7));
  EXPECT_THAT(*ForcedTokens(vocabulary, "__de__ __de__ __x Das  Haus"), ElementsAre(4, 4, 5, 6, 7));
  for (const char* unknown : {"__fr__", "das", "</s>", "<unk>", "____"}) {
    const absl::Status status = ForcedTokens(vocabulary, std::string("__de__ Das ") + unknown + " Haus").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("a token of \"") + unknown + "\""));
  }
}

}  // namespace
}  // namespace hadal
