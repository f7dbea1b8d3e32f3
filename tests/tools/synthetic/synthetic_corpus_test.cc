#include "tools/synthetic/synthetic_corpus.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/utf8.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class SyntheticCorpusTest : public ::testing::Test {
 protected:
  const TemporaryDirectory parent_;
  const std::string directory_ = parent_ / "text";  // not there yet
  std::ostringstream out_;
};

TEST_F(SyntheticCorpusTest, HeldOutSentencesNeverOccurInTraining) {
  const GenerateOptions options = {.output = directory_, .pairs = 8000, .valid = 200, .test = 150};
  ASSERT_TRUE(RunGenerate(options, out_).ok());
  std::set<std::string> seen;
  for (const char* split : {"train", "valid", "test"}) {
    const std::string stem = directory_ + "/" + split;
    EXPECT_EQ(Lines(stem + ".en").size(), Lines(stem + ".de").size());
  }
  const std::vector<std::string> train = Lines(directory_ + "/train.en");
  const std::vector<std::string> valid = Lines(directory_ + "/valid.en");
  const std::vector<std::string> test = Lines(directory_ + "/test.en");
  EXPECT_EQ(train.size(), 8000u);
  EXPECT_EQ(valid.size(), 200u);
  EXPECT_EQ(test.size(), 150u);
  seen.insert(train.begin(), train.end());
  EXPECT_GT(seen.size(), 7800u);  // a few short sentences repeat
  for (const std::vector<std::string>& held_out : {valid, test}) {
    for (const std::string& sentence : held_out) EXPECT_TRUE(seen.insert(sentence).second) << sentence;
  }
}

TEST_F(SyntheticCorpusTest, HeldOutAlsoBetweenSeeds) {
  std::set<std::string> held_out;
  for (uint64_t i = 0; i < 3000; ++i) {
    const std::string english = MakeSyntheticPair(1, i).english;
    if (SplitOf(english) != SyntheticSplit::kTrain) held_out.insert(english);
  }
  for (uint64_t i = 0; i < 3000; ++i) {
    const std::string english = MakeSyntheticPair(2, i).english;
    EXPECT_FALSE(SplitOf(english) == SyntheticSplit::kTrain && held_out.contains(english)) << english;
  }
}

TEST_F(SyntheticCorpusTest, SeedDecidesAndIndexIsIndependent) {
  std::vector<std::string> first, second;
  for (uint64_t i = 0; i < 50; ++i) first.push_back(MakeSyntheticPair(3, i).english);
  for (uint64_t i = 50; i-- > 0;) second.insert(second.begin(), MakeSyntheticPair(3, i).english);
  EXPECT_EQ(first, second);
  int same = 0;
  for (uint64_t i = 0; i < 50; ++i) same += MakeSyntheticPair(4, i).english == first[i] ? 1 : 0;
  EXPECT_LT(same, 5);
  EXPECT_NE(MakeSyntheticPair(3, uint64_t{1} << 40).english, MakeSyntheticPair(3, 0).english);
}

// One English sentence has one translation: else no model could reach a BLEU of 100.
TEST_F(SyntheticCorpusTest, TranslationIsAFunction) {
  std::map<std::string, std::string> german_of;
  for (uint64_t i = 0; i < 40000; ++i) {
    const SyntheticPair pair = MakeSyntheticPair(5, i);
    const auto [place, is_new] = german_of.emplace(pair.english, pair.german);
    EXPECT_EQ(place->second, pair.german) << pair.english;
  }
}

TEST_F(SyntheticCorpusTest, SentencesAreWellFormedText) {
  for (uint64_t i = 0; i < 20000; ++i) {
    const SyntheticPair pair = MakeSyntheticPair(6, i);
    for (const std::string& text : {pair.english, pair.german}) {
      ASSERT_EQ(ValidUtf8Prefix(text), text.size());
      EXPECT_TRUE((text[0] >= 'A' && text[0] <= 'Z') || text.starts_with("Ä")) << text;
      EXPECT_TRUE(text.ends_with('.') || text.ends_with('?')) << text;
      for (const char* bad : {"  ", " ,", ",,", ",.", ",?", " .", " ?"}) EXPECT_EQ(text.find(bad), text.npos) << text;
    }
    EXPECT_EQ(pair.english.back(), pair.german.back());
  }
}

TEST_F(SyntheticCorpusTest, EveryConstructionOccurs) {
  std::map<std::string, int> counts;
  const std::vector<std::string> wanted = {", dass ", ", ob ",    "Weil ",      ", als ", "Es gibt ", " nicht ",
                                           " kein",   ", denen ", ", mit dem ", " zu ",   "zumachen", "zuzumachen",
                                           "Wen ",    "Wem ",     "Wo ",        "Warum ", " hat ",    " ist ",
                                           " wird ",  " kann ",   " und ",      ", aber "};
  for (uint64_t i = 0; i < 20000; ++i) {
    const std::string german = MakeSyntheticPair(7, i).german;
    for (const std::string& piece : wanted) counts[piece] += german.find(piece) != german.npos ? 1 : 0;
  }
  for (const std::string& piece : wanted) EXPECT_GT(counts[piece], 3) << piece;
}

TEST_F(SyntheticCorpusTest, FilesThatAreThereAreKept) {
  GenerateOptions options = {.output = directory_, .pairs = 50, .valid = 0, .test = 0};
  ASSERT_TRUE(RunGenerate(options, out_).ok());
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/valid.en"));
  const std::vector<std::string> before = Lines(directory_ + "/train.en");
  options.seed = 2;
  EXPECT_EQ(RunGenerate(options, out_).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Lines(directory_ + "/train.en"), before);
  options.overwrite = true;
  ASSERT_TRUE(RunGenerate(options, out_).ok());
  EXPECT_NE(Lines(directory_ + "/train.en"), before);
}

TEST_F(SyntheticCorpusTest, BadSizesAreRefused) {
  const auto message = [&](const GenerateOptions& options) {
    return std::string(RunGenerate(options, out_).message());
  };
  EXPECT_THAT(message({.output = directory_, .pairs = 0}), HasSubstr("--pairs 0"));
  EXPECT_THAT(message({.output = directory_, .valid = -1}), HasSubstr("--valid -1"));
  EXPECT_THAT(message({}), HasSubstr("--out"));
}

}  // namespace
}  // namespace hadal
