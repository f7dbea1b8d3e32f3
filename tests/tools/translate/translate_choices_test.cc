// What a user chooses of an output: its language, its beginning, samples, JSON; the command line; and unknown tokens.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "pipeline/engine/engine.h"
#include "runtime/data/language_tags.h"
#include "runtime/data/packed_batch.h"
#include "tests/support/saved_model.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/translate/translate_fixture.h"
#include "tools/command_line.h"
#include "tools/translate/translate.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Learns two directions by heart, whose tags say which: en-de means the next sentence, en-fr the same one.
absl::StatusOr<int64_t> LearnDirections(const Vocabulary& vocabulary, Engine& engine) {
  PackedBatch batch;
  const std::vector<int32_t> english = {vocabulary.Id("__en__")};
  for (size_t s = 0; s < Sentences().size(); ++s) {
    for (const auto& [tag, meaning] : {std::pair("__de__", &MeaningOf(s)), std::pair("__fr__", &Sentences()[s])}) {
      const std::vector<int32_t> source = vocabulary.Encode(Sentences()[s]);
      std::vector<int32_t> target = vocabulary.Encode(*meaning);
      target.insert(target.begin(), vocabulary.Id(tag));
      AppendSentence({.prefix = english, .source = source, .target = target}, static_cast<int64_t>(s), batch);
    }
  }
  return LearnByHeart(batch, 400, engine);
}

TEST_F(TranslateTest, ADirectionSetsTheTags) {
  const Vocabulary vocabulary = *AddLanguageTags(MakeVocabulary(), {"de", "en", "fr"});
  std::filesystem::remove_all(directory_ / "run");
  SavedModel saved{.model = TinyModel(vocabulary.size()),
                   .vocabularies = {VocabularyFile("vocabulary", vocabulary)},
                   .train = [&](Engine& engine) { return LearnDirections(vocabulary, engine); }};
  ASSERT_EQ(SaveModel(saved, directory_ / "run"), absl::OkStatus());
  TranslateOptions options = Options();
  options.tags = LanguageTags::kM2m100;
  options.direction = "en-de";
  EXPECT_EQ(*Translate(options, Lines({Sentences()[0], Sentences()[1]})), Lines({MeaningOf(0), MeaningOf(1)}));
  options.direction = "en-fr";
  EXPECT_EQ(*Translate(options, Lines({Sentences()[0], Sentences()[1]})), Lines({Sentences()[0], Sentences()[1]}));
  options.json = true;
  EXPECT_THAT(*Translate(options, Lines({Sentences()[0]})), HasSubstr("\"tokens\":[\"__fr__\","));
  options.json = false;
  options.print_scores = true;
  const double printed = std::stod(*Translate(options, Lines({Sentences()[0]})));
  const auto [log_probability, tokens] =
      Score(Sentences()[0], Sentences()[0], 2, {.direction = "en-fr", .tags = LanguageTags::kM2m100})[0];
  EXPECT_NEAR(log_probability / std::pow(tokens, 0.6), printed, 1e-4);
  EXPECT_EQ(tokens, std::ssize(vocabulary.Encode(Sentences()[0])) + 2) << "the tag and </s>";
  options.direction = "en-es";
  EXPECT_THAT(std::string(Translate(options, "a\n").status().message()),
              HasSubstr("no language tag __es__; it has __de__, __en__, __fr__"));
  options.direction = "";
  EXPECT_THAT(std::string(Translate(options, "a\n").status().message()), HasSubstr("are given together"));

  // A checkpoint that knows its tags uses them, and no others.
  saved.inputs.tags = "m2m100";
  ASSERT_EQ(SaveModel(saved, directory_ / "knows"), absl::OkStatus());
  options = Options();
  options.checkpoint = directory_ / "knows";
  EXPECT_THAT(std::string(Translate(options, "a\n").status().message()),
              HasSubstr("trained with language tags of the preset m2m100; give --direction"));
  options.direction = "en-de";
  EXPECT_EQ(*Translate(options, Lines({Sentences()[0]})), Lines({MeaningOf(0)}));
  options.tags = LanguageTags::kDeepnet;
  EXPECT_THAT(
      std::string(Translate(options, "a\n").status().message()),
      HasSubstr("--tags has language tags of the preset deepnet, and the model was trained with language tags of "
                "the preset m2m100"));
  options.direction = "";
  options.tags = LanguageTags::kNone;
  EXPECT_TRUE(Translate(options, "a\n").ok()) << "as asked";
  saved.inputs.tags = "none";
  std::filesystem::remove_all(directory_ / "knows");
  ASSERT_EQ(SaveModel(saved, directory_ / "knows"), absl::OkStatus());
  options.tags.reset();
  EXPECT_TRUE(Translate(options, "a\n").ok());
  options.direction = "en-de";
  EXPECT_THAT(std::string(Translate(options, "a\n").status().message()), HasSubstr("trained without language tags"));
}

TEST_F(TranslateTest, OutputsBeginAsForced) {
  const std::string input = Lines({Sentences()[0], "", Sentences()[2], Sentences()[1]});
  TranslateOptions options = Options();
  options.prefixes = directory_ / "prefixes";
  SetContents(options.prefixes, "\nnothing here counts\nCats\non the\n");
  const std::string reference = *Translate(options, input);
  const std::vector<std::string> lines = absl::StrSplit(reference, '\n');
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0], MeaningOf(0)) << "nothing is forced";
  EXPECT_EQ(lines[1], "");
  EXPECT_THAT(lines[2], StartsWith("Cats"));
  EXPECT_NE(lines[3], MeaningOf(1));
  EXPECT_THAT(lines[3], StartsWith("on the"));
  options.buffer_lines = 2;
  EXPECT_EQ(*Translate(options, input, 3), reference) << "3 ranks, 2 lines at a time";
}

TEST_F(TranslateTest, ShortestOutputsAndRepetitions) {
  TranslateOptions options = Options();
  options.beam.no_repeat_ngram = 1;
  EXPECT_NE(*Translate(options, Lines({Sentences()[1]})), Lines({MeaningOf(1)})) << "it has pieces twice";
  options = Options();
  options.beam.min_length = 38;
  options.json = true;
  const std::string tokens = *Translate(options, Lines({Sentences()[0]}));
  EXPECT_GE(std::count(tokens.begin(), tokens.end(), ','), 38);
  EXPECT_THAT(log_, Not(HasSubstr("--min-len")));
  options.beam.min_length = 1000;
  EXPECT_TRUE(Translate(options, Lines({Sentences()[0]})).ok());
  EXPECT_THAT(log_,
              HasSubstr("1 outputs end at the longest length, before --min-len 1000; raise --max-len-b, if the model"));
}

TEST_F(TranslateTest, ForcedBeginningsThatCannotBeAreNamed) {
  const auto message = [&](const std::string& prefixes, TranslateOptions options) {
    options.prefixes = directory_ / "prefixes";
    SetContents(options.prefixes, prefixes);
    const absl::Status status = Translate(options, Lines({Sentences()[0], Sentences()[1]})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  TranslateOptions options = Options();
  EXPECT_THAT(message("a\n", options), HasSubstr("ends after line 1;"));
  EXPECT_THAT(message("a\nb\nc\n", options), HasSubstr("more lines than the input, which has 2"));
  EXPECT_THAT(message("a\nthe \xE6\xBC\xA2 dog\n", options),
              AllOf(HasSubstr("prefixes:2"), HasSubstr("lacks a token of \"\xE6\xBC\xA2\"")));
  options.beam.max_length_a = 0, options.beam.max_length_b = 2;
  EXPECT_THAT(
      message("\nthe old cat\n", options),
      AllOf(HasSubstr("prefixes:2 has "), HasSubstr("more than the longest output, 2"), HasSubstr("--max-len-b")));
  options = Options();
  options.prefixes = options.output = directory_ / "prefixes";
  EXPECT_FALSE(Translate(options, "").ok()) << "it would be overwritten";
}

// The same whatever is read at a time, on any ranks; another seed, other samples.
TEST_F(TranslateTest, SamplesDependOnTheLineAndTheSeed) {
  const std::string input = Lines({Sentences()[0], "", Sentences()[2], Sentences()[0], Sentences()[0]});
  TranslateOptions options = Options();
  options.beam.temperature = 3;  // the model knows its sentences
  options.nbest = 2;
  options.print_scores = true;
  const std::string reference = *Translate(options, input);
  const std::vector<std::string> lines = absl::StrSplit(reference, '\n');
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_EQ(lines[2], "2\t\t");
  EXPECT_NE(lines[0].substr(2), lines[5].substr(2)) << "the same sentence in another line";
  EXPECT_THAT(log_, HasSubstr("drawn with temperature 3, top-k 0, top-p 1, seed 1"));
  TranslateOptions other = options;
  other.buffer_lines = 1;
  EXPECT_EQ(*Translate(other, input, 3), reference);
  other.beam.seed = 2;
  EXPECT_NE(*Translate(other, input), reference);
  options.beam.top_k = 1;
  EXPECT_THAT(*Translate(options, input), HasSubstr("\t" + MeaningOf(0) + "\n")) << "the most likely tokens alone";
  options.json = true;
  const nlohmann::json sample = nlohmann::json::parse(*Translate(options, Lines({Sentences()[0]})))["hypotheses"][0];
  double sum = 0;
  for (const nlohmann::json& log_probability : sample["log_probabilities"]) sum += log_probability.get<double>();
  EXPECT_DOUBLE_EQ(sample["score"].get<double>(), sum) << "no length penalty";
  options.beam.length_penalty = 1;
  EXPECT_THAT(std::string(Translate(options, input).status().message()), HasSubstr("--length-penalty"));
  options = Options();
  options.beam.top_p = 1.5;
  EXPECT_THAT(std::string(Translate(options, input).status().message()), HasSubstr("top-p = 1.5"));
}

TEST_F(TranslateTest, JsonOfEveryLine) {
  TranslateOptions options = Options();
  options.json = true;
  const std::vector<std::string> lines = absl::StrSplit(*Translate(options, Lines({Sentences()[0], "  "})), '\n');
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], StartsWith("{\"line\":1,\"source\":\"" + Sentences()[0] + "\",\"hypotheses\":[{\"text\":\"" +
                                   MeaningOf(0) + "\","));
  EXPECT_EQ(lines[1], "{\"line\":2,\"source\":\"  \",\"hypotheses\":[]}");
}

// An untrained model: only what it reads counts.
TEST_F(TranslateTest, TextThatIsNotEncodedIsNamed) {
  const Vocabulary dictionary = *Vocabulary::FromTokens({"▁a", "▁do", "g", "mat"});
  std::filesystem::remove_all(directory_ / "run");
  ASSERT_EQ(
      SaveModel({.model = TinyModel(dictionary.size()), .vocabularies = {VocabularyFile("vocabulary", dictionary)}},
                directory_ / "run"),
      absl::OkStatus());
  TranslateOptions options = Options();
  options.beam.max_length_b = 2;
  ASSERT_TRUE(Translate(options, "▁a ▁do g\n▁a cat\n").ok());
  EXPECT_THAT(log_, Not(HasSubstr("not in the model's dictionary")));
  options.buffer_lines = 2;
  ASSERT_TRUE(Translate(options, "▁a\n▁a mat\na dog\non the mat\na\n", 2).ok());
  EXPECT_THAT(log_, HasSubstr("warning: 4 of 5 tokens of lines 3 to 4 are not in the model's dictionary"));
  EXPECT_EQ(log_.find("model's dictionary"), log_.rfind("model's dictionary")) << "once";
}

TEST(TranslateOptionsTest, CommandLine) {
  CommandLine line("translate", "");
  TranslateOptions options;
  AddTranslateOptions(line.program(), options);
  const std::vector<std::string> words = absl::StrSplit(
      "run --beam 7 --length-penalty 1.1 --max-len-a 1.5 --max-len-b 10 --nbest 2 --print-scores --on-long skip --join "
      "bpe "
      "--cache-mib 64 --batch 8 --min-len 3 --no-repeat-ngram 2",
      ' ');
  ASSERT_EQ(line.Run(words), CommandLine::Outcome::kRan);
  EXPECT_EQ(options.checkpoint, "run");
  EXPECT_EQ(options.beam.beam, 7);
  EXPECT_EQ(options.beam.length_penalty, 1.1);
  EXPECT_EQ(options.beam.max_length_a, 1.5);
  EXPECT_EQ(options.beam.max_length_b, 10);
  EXPECT_EQ(options.beam.min_length, 3);
  EXPECT_EQ(options.beam.no_repeat_ngram, 2);
  EXPECT_EQ(options.nbest, 2);
  EXPECT_TRUE(options.print_scores);
  EXPECT_EQ(options.over_long, OverLong::kSkip);
  EXPECT_EQ(options.joining, PieceJoining::kBpe);
  EXPECT_EQ(options.decoder.cache_limit_bytes, 64 << 20);
  EXPECT_EQ(options.decoder.sentences, 8);
  EXPECT_FALSE(options.beam.samples());
}

TEST(TranslateOptionsTest, SamplesCommandLine) {
  CommandLine line("sample", "");
  TranslateOptions options;
  AddSampleOptions(line.program(), options);
  EXPECT_TRUE(options.language_model);
  ASSERT_EQ(
      line.Run({"run", "--prompts", "-", "--max-len", "30", "--top-k", "5", "--top-p", "0.5", "--seed", "9", "--json"}),
      CommandLine::Outcome::kRan);
  EXPECT_EQ(options.input, "-");
  EXPECT_EQ(options.beam.temperature, 1);
  EXPECT_EQ(options.beam.max_length_b, 30);
  EXPECT_EQ(options.beam.top_k, 5);
  EXPECT_EQ(options.beam.top_p, 0.5);
  EXPECT_EQ(options.beam.seed, 9u);
  EXPECT_TRUE(options.json);
}

}  // namespace
}  // namespace hadal
