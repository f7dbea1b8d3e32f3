// `hadal score` of a language model: plain text in, log-probabilities and the two perplexities out; and what such a
// model refuses.
#include "tools/translate/score.h"
#include "tools/translate/translate.h"

#include <cmath>
#include <filesystem>
#include <sstream>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/vocabulary_training.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tests/support/saved_model.h"
#include "tests/support/small_model.h"
#include "tests/support/temporary_directory.h"
#include "tools/output/human_units.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

SavedModel LanguageModel(const Vocabulary& vocabulary = *TrainVocabulary({.size = 40}, {"the old cat sat on the mat",
                                                                                        "a dog", "a red door"})) {
  return {
      .model = testing::SmallModel(
          ResidualMethod::kPreLn,
          {.encoder_layers = 0, .decoder_layers = 3, .heads = 2, .vocabulary = vocabulary.size(), .max_positions = 60}),
      .vocabularies = {VocabularyFile("vocabulary", vocabulary)}};
}

class ScoreTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(SaveModel(LanguageModel(), directory_ / "run"), absl::OkStatus()); }

  struct Line {
    double log_probability = 0;
    int tokens = 0;
    bool operator==(const Line&) const = default;
  };

  ScoreOptions Options(const std::string& text) const {
    SetContents(directory_ / "text", text);
    return {.checkpoint = directory_ / "run", .target = directory_ / "text"};
  }

  absl::StatusOr<std::vector<Line>> Score(const ScoreOptions& options, int ranks = 1) {
    std::ostringstream out, log;
    InProcessWorld world(ranks);
    HADAL_RETURN_IF_ERROR(world.Run([&](Communicator& c) {
      PrepareComputeThread();
      std::ostringstream nowhere;
      return RunScore(options, c, Stream::Cpu(1), c.rank() == 0 ? out : nowhere, c.rank() == 0 ? log : nowhere);
    }));
    log_ = log.str();
    std::vector<Line> lines;
    for (const auto text : absl::StrSplit(out.str(), '\n', absl::SkipEmpty())) {
      const std::vector<std::string> fields = absl::StrSplit(text, '\t');
      lines.push_back({std::stod(fields[0]), std::stoi(fields[1])});
    }
    return lines;
  }

  TemporaryDirectory directory_;
  std::string log_;
};

TEST_F(ScoreTest, PerplexityATokenAndAWord) {
  const absl::StatusOr<std::vector<Line>> lines = Score(Options("the  old cat\n\n a\tdog \nred"));
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 4u);
  EXPECT_EQ((*lines)[1].tokens, 1) << "a blank line is its end alone";
  double nll = 0;
  int tokens = 0;
  for (const Line& line : *lines) {
    EXPECT_LT(line.log_probability, 0);
    nll -= line.log_probability;
    tokens += line.tokens;
  }
  constexpr int kWords = 3 + 0 + 2 + 1 + 4;  // and four ends of lines
  EXPECT_THAT(log_, HasSubstr(absl::StrFormat("scored 4 lines, %d target tokens: nll %.4f, perplexity %s per token",
                                              tokens, nll / tokens, HumanValue(std::exp(nll / tokens), 4))));
  EXPECT_THAT(log_, HasSubstr(absl::StrFormat("%d words: perplexity %s per word", kWords,
                                              HumanValue(std::exp(nll / kWords), 4))));
}

// Every token is scored once, whatever repeats as context.
TEST_F(ScoreTest, AStreamInBlocks) {
  const std::vector<Line> line = *Score(Options("a red door"));
  ScoreOptions options = Options("a red door");
  options.block = line[0].tokens;
  const std::vector<Line> whole = *Score(options);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].tokens, line[0].tokens);
  EXPECT_NEAR(whole[0].log_probability, line[0].log_probability, 1e-4) << "one block of one line is that line";
  const std::string text = "the old cat\na dog\n\nthe mat sat on the red door\n";
  options = Options(text);
  int tokens = 0;
  const std::vector<Line> by_line = *Score(options);
  for (const Line& l : by_line) tokens += l.tokens;
  options.block = 7;
  for (const int64_t context : {0, 1, 5, 6}) {
    options.context = context;
    int scored = 0;
    const std::vector<Line> blocks = *Score(options);
    for (const Line& block : blocks) scored += block.tokens;
    EXPECT_EQ(scored, tokens) << "every token once";
    EXPECT_EQ(std::ssize(blocks), (tokens + 6 - context) / (7 - context));
    EXPECT_EQ(*Score(options, /*ranks=*/2), blocks);
    EXPECT_THAT(log_, HasSubstr(absl::StrFormat("%d new tokens", tokens)));
  }
  options.context = 7;
  EXPECT_THAT(std::string(Score(options).status().message()), HasSubstr("leaves no new token"));
  options.context = 0;
  options.block = 61;
  EXPECT_THAT(std::string(Score(options).status().message()), HasSubstr("max_positions"));
}

TEST_F(ScoreTest, ATokenOfAStreamSeesItsContext) {
  ScoreOptions options = Options("the old cat\na dog\n\nthe mat sat on the red door\n");
  options.block = 60;  // more than the text has
  const std::vector<Line> whole = *Score(options);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_THAT(log_, HasSubstr("; 16 words: perplexity")) << "with the ends of lines";
  options.context = 59;
  const std::vector<Line> by_token = *Score(options);
  ASSERT_EQ(std::ssize(by_token), whole[0].tokens);
  double log_probability = 0;
  for (const Line& token : by_token) log_probability += token.log_probability;
  EXPECT_NEAR(log_probability, whole[0].log_probability, 1e-3);
  options.block = 0;
  EXPECT_THAT(std::string(Score(options).status().message()), HasSubstr("--context needs --block"));
}

// A model that has read documents apart scores them so: a block of several is as each by itself.
TEST_F(ScoreTest, ABlockOfAModelWithADocumentMaskHasDocuments) {
  SavedModel model = LanguageModel();
  model.model.document_mask = true;
  std::filesystem::remove_all(directory_ / "run");
  ASSERT_TRUE(SaveModel(model, directory_ / "run").ok());
  ScoreOptions options = Options("the old cat\na dog\nthe mat\n");
  Line sum;
  const std::vector<Line> documents = *Score(options);
  for (const Line& line : documents) {
    sum.log_probability += line.log_probability;
    sum.tokens += line.tokens;
  }
  options.block = 60;
  const std::vector<Line> whole = *Score(options);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].tokens, sum.tokens);
  EXPECT_NEAR(whole[0].log_probability, sum.log_probability, 1e-4);
  options.block = 10;
  options.context = 9;
  const std::vector<Line> by_token = *Score(options);
  double log_probability = 0;
  for (const Line& token : by_token) log_probability += token.log_probability;
  EXPECT_NEAR(log_probability, sum.log_probability, 1e-3) << "the context holds each document's beginning";
}

TEST_F(ScoreTest, ALanguageModelHasNoDirection) {
  ScoreOptions options = Options("a dog");
  options.direction = "en-de";
  options.tags = LanguageTags::kDeepnet;
  for (const int64_t block : {0, 8}) {
    options.block = block;
    EXPECT_THAT(std::string(Score(options).status().message()), HasSubstr("--direction"));
  }
}

TEST_F(ScoreTest, NothingToScoreIsSaid) {
  ScoreOptions options = Options("");
  for (const int ranks : {1, 2}) {
    EXPECT_TRUE(Score(options, ranks)->empty());
    EXPECT_EQ(log_, absl::StrCat("nothing was scored: ", options.target, " is empty\n"));
  }
  SetContents(options.target, std::string(300, 'd') + "\n");
  options.over_long = OverLong::kSkip;
  EXPECT_EQ(Score(options)->size(), 1u);
  EXPECT_EQ(log_, "nothing was scored\nskipped 1 lines that are too long\n");
}

TEST_F(ScoreTest, WarnsOfWordsThatADictionaryLacks) {
  std::filesystem::remove_all(directory_ / "run");
  ASSERT_TRUE(SaveModel(LanguageModel(*Vocabulary::FromTokens({"the", "cat"})), directory_ / "run").ok());
  ScoreOptions options = Options("the a@@ c@@ t\n");
  for (const int64_t block : {0, 8}) {
    options.block = block;
    EXPECT_TRUE(Score(options).ok());
    EXPECT_THAT(log_, HasSubstr("3 of 4 tokens of the text are not in the model's dictionary")) << block;
  }
}

TEST_F(ScoreTest, ALinesScoreDependsOnTheModelAlone) {
  const std::vector<Line> together = *Score(Options("the old cat\na dog\n\nthe mat sat on the red door\n"));
  EXPECT_EQ(*Score(Options("a dog\n")), std::vector<Line>{together[1]});
  EXPECT_EQ(*Score(Options("the mat sat on the red door\n")), std::vector<Line>{together[3]});
  for (const int ranks : {2, 4}) {
    EXPECT_EQ(*Score(Options("the old cat\na dog\n\nthe mat sat on the red door\n"), ranks), together);
  }
}

TEST_F(ScoreTest, ALineThatIsNotUtf8IsNamedWithWhatToTry) {
  ScoreOptions options = Options("a dog\na c\xFFt\n");
  options.output = directory_ / "scores";
  for (const int64_t block : {0, 8}) {
    options.block = block;
    EXPECT_THAT(
        std::string(Score(options).status().message()),
        HasSubstr(options.target + ":2: not UTF-8 from byte 4 of the line on (convert it, for example with iconv)"));
    EXPECT_FALSE(PathExists(options.output));
  }
}

TEST_F(ScoreTest, LinesLongerThanTheModelAreAnErrorOrCounted) {
  std::string longest;
  for (int i = 0; i < 80; ++i) longest += "mat ";
  ScoreOptions options = Options(absl::StrCat("a dog\n", longest, "\n"));
  const auto message = [&] { return std::string(Score(options).status().message()); };
  EXPECT_THAT(message(), HasSubstr("line 2 has"));
  EXPECT_THAT(message(), HasSubstr("more than 59; that is the model's limit (max_positions)"));
  EXPECT_THAT(message(), Not(HasSubstr("--batch-tokens")));
  options.over_long = OverLong::kSkip;
  const std::vector<Line> lines = *Score(options);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_LT(lines[0].log_probability, 0);
  EXPECT_TRUE(std::isnan(lines[1].log_probability)) << lines[1].log_probability;
  EXPECT_EQ(lines[1].tokens, 0);
  EXPECT_THAT(log_, HasSubstr("3 words"));
  EXPECT_THAT(log_, HasSubstr("skipped 1 lines"));
}

// Of 32 rows </s> takes one.
TEST_F(ScoreTest, LinesLongerThanABatchAreToldToRaiseIt) {
  ScoreOptions options = Options(std::string(52, 'd') + "\n");  // 52 tokens, or one more for the word's begin
  options.batch_tokens = 32;
  EXPECT_THAT(std::string(Score(options).status().message()),
              HasSubstr("more than 31; use --on-long skip or a higher --batch-tokens"));
  options.batch_tokens = 128;
  EXPECT_TRUE(Score(options).ok());
}

TEST_F(ScoreTest, TextThatIsNotEncodedIsNamed) {
  const Vocabulary dictionary = *Vocabulary::FromTokens({"▁a", "▁do", "g"});
  std::filesystem::remove_all(directory_ / "run");
  SavedModel model = LanguageModel();
  model.model.target_vocabulary = dictionary.size();
  model.vocabularies = {VocabularyFile("vocabulary", dictionary)};
  ASSERT_TRUE(SaveModel(model, directory_ / "run").ok());
  ASSERT_TRUE(Score(Options("▁a ▁do g\na ▁a\n")).ok());
  EXPECT_THAT(log_, Not(HasSubstr("warning")));
  ASSERT_TRUE(Score(Options("a dog\n▁a\n")).ok());
  EXPECT_THAT(log_, HasSubstr("warning: 2 of 3 tokens of the text are not in the model's dictionary"));
}

TEST_F(ScoreTest, ALanguageModelHasNoSourceAndDoesNotTranslate) {
  ScoreOptions options = Options("a dog\n");
  options.source = options.target;
  EXPECT_THAT(std::string(Score(options).status().message()), HasSubstr("needs no --source"));
  InProcessWorld world(1);
  const absl::Status status = world.Run([&](Communicator& c) {
    PrepareComputeThread();
    std::istringstream in("a dog\n");
    std::ostringstream out;
    return RunTranslate({.checkpoint = directory_ / "run"}, c, Stream::Cpu(1), {in, out, out});
  });
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cannot translate; `hadal sample` writes text with it, `hadal score --target FILE`"));
}

}  // namespace
}  // namespace hadal
