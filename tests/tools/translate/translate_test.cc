// Text to text from a checkpoint alone, on any number of ranks; and what `hadal score` says of it.
#include "tools/translate/translate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <sstream>
#include <streambuf>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pipeline/engine/engine.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/data/language_tags.h"
#include "runtime/data/pack_sentences.h"
#include "runtime/data/vocabulary_training.h"
#include "runtime/status_macros.h"
#include "tests/support/saved_model.h"
#include "tests/support/small_model.h"
#include "tests/support/temporary_directory.h"
#include "tools/command_line.h"
#include "tools/translate/score.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<std::string>& Sentences() {
  static const auto* const sentences =
      new std::vector<std::string>{"the old cat sat on the mat", "a dog", "every small house has a red door",
                                   "Cats, dogs and 12 birds!", "on the mat"};
  return *sentences;
}

Vocabulary MakeVocabulary() { return *TrainVocabulary({.size = 60}, Sentences()); }

// The model learns by heart that each sentence means the next one.
const std::string& MeaningOf(size_t sentence) { return Sentences()[(sentence + 1) % Sentences().size()]; }

ModelOptions TinyModel(int32_t vocabulary) {
  ModelOptions model = testing::SmallModel(
      ResidualMethod::kBranchNorm, {.encoder_layers = 2, .decoder_layers = 2, .d_model = 32, .vocabulary = vocabulary});
  model.dropout = model.attention_dropout = model.activation_dropout = model.label_smoothing = 0;
  model.branch_growth_updates = 200;
  return model;
}

absl::StatusOr<int64_t> Learn(const Vocabulary& vocabulary, Engine& engine) {
  PackedBatch batch;
  for (size_t s = 0; s < Sentences().size(); ++s) {
    const std::vector<int32_t> source = vocabulary.Encode(Sentences()[s]), target = vocabulary.Encode(MeaningOf(s));
    AppendSentence({.source = source, .target = target}, static_cast<int64_t>(s), batch);
  }
  constexpr int64_t kSteps = 120;
  for (int64_t step = 0; step < kSteps; ++step) {
    const StepScalars scalars{
        .step = step, .update = step + 1, .gradient_scale = 1.0f / static_cast<float>(batch.target_rows())};
    HADAL_RETURN_IF_ERROR(engine.TrainingStep({&batch, 1}, scalars, {.learning_rate = 4e-3}).status());
  }
  return kSteps;
}

class TranslateTest : public ::testing::Test {
 protected:
  void SetUp() override { Save(/*shared=*/true, /*ranks=*/1); }

  void Save(bool shared, int ranks, const std::string& config = "") {
    const Vocabulary vocabulary = MakeVocabulary();
    SavedModel saved{.model = TinyModel(vocabulary.size()),
                     .vocabularies = {VocabularyFile("vocabulary", vocabulary)},
                     .config = config,
                     .ranks = ranks,
                     .train = [&](Engine& engine) { return Learn(vocabulary, engine); }};
    if (!shared) {
      saved.vocabularies = {VocabularyFile("source.vocabulary", vocabulary),
                            VocabularyFile("target.vocabulary", vocabulary)};
    }
    const absl::Status status = SaveModel(saved, directory_ / "run");
    ASSERT_TRUE(status.ok()) << status;
  }

  TranslateOptions Options() const {
    TranslateOptions options{.checkpoint = directory_ / "run"};
    options.beam.max_length_b = 40;
    return options;
  }

  // What the command prints, or its error.
  absl::StatusOr<std::string> Translate(const TranslateOptions& options, const std::string& input, int ranks = 1) {
    std::istringstream in(input);
    std::ostringstream out, log, unused_out, unused_log;
    std::istringstream unused_in;
    InProcessWorld world(ranks);
    const absl::Status status = world.Run([&](Communicator& c) {
      PrepareComputeThread();
      if (c.rank() == 0) return RunTranslate(options, c, Stream::Cpu(1), {in, out, log});
      std::istringstream none;
      std::ostringstream nowhere;
      const absl::Status followed = RunTranslate(options, c, Stream::Cpu(1), {none, nowhere, nowhere});
      EXPECT_EQ(nowhere.str(), "");
      return followed;
    });
    log_ = log.str();
    if (!status.ok()) return status;
    return out.str();
  }

  std::vector<std::pair<double, int>> Score(const std::string& source, const std::string& target, int ranks = 1) {
    SetContents(directory_ / "source", source);
    SetContents(directory_ / "target", target);
    std::ostringstream out, log;
    InProcessWorld world(ranks);
    const absl::Status status = world.Run([&](Communicator& c) {
      PrepareComputeThread();
      std::ostringstream nowhere;
      const ScoreOptions options{
          .checkpoint = directory_ / "run", .source = directory_ / "source", .target = directory_ / "target"};
      return RunScore(options, c, Stream::Cpu(1), c.rank() == 0 ? out : nowhere, c.rank() == 0 ? log : nowhere);
    });
    EXPECT_TRUE(status.ok()) << status;
    std::vector<std::pair<double, int>> scores;
    for (const auto line : absl::StrSplit(out.str(), '\n', absl::SkipEmpty())) {
      const std::vector<std::string> fields = absl::StrSplit(line, '\t');
      EXPECT_EQ(fields.size(), 2u);
      scores.push_back({std::stod(fields[0]), std::stoi(fields[1])});
    }
    return scores;
  }

  TemporaryDirectory directory_;
  std::string log_;
};

std::string Lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  return text;
}

// Lines as someone types them; notes how many answers there are before each.
class TypedLines : public std::streambuf {
 public:
  TypedLines(std::vector<std::string> lines, const std::ostringstream& answers)
      : lines_(std::move(lines)), answers_(answers) {}
  std::vector<int64_t> answers_before;

 private:
  int_type underflow() override {
    answers_before.push_back(std::ranges::count(answers_.str(), '\n'));
    if (next_ == lines_.size()) return traits_type::eof();
    std::string& line = lines_[next_++];
    setg(line.data(), line.data(), line.data() + line.size());
    return traits_type::to_int_type(line[0]);
  }

  std::vector<std::string> lines_;
  size_t next_ = 0;
  const std::ostringstream& answers_;
};

TEST_F(TranslateTest, ATypedLineIsAnsweredBeforeTheNext) {
  std::ostringstream out, log;
  TypedLines typed({"a b\n", "b c\n"}, out);
  std::istream in(&typed);
  InProcessWorld world(1);
  const absl::Status status = world.Run([&](Communicator& c) {
    PrepareComputeThread();
    return RunTranslate(Options(), c, Stream::Cpu(1), {in, out, log, /*typed=*/true});
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(typed.answers_before, ElementsAre(0, 1, 2));
  EXPECT_THAT(log.str(), HasSubstr("Ctrl-D ends"));
}

TEST_F(TranslateTest, KeepsTheOrderAndEmptyLinesWhateverTheLayout) {
  const std::string input = Lines({Sentences()[0], "", Sentences()[2], "   ", Sentences()[1], Sentences()[3]});
  const absl::StatusOr<std::string> reference = Translate(Options(), input);
  ASSERT_TRUE(reference.ok()) << reference.status();
  const std::vector<std::string> lines = absl::StrSplit(*reference, '\n');
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines, (std::vector<std::string>{MeaningOf(0), "", MeaningOf(2), "", MeaningOf(1), MeaningOf(3), ""}));
  EXPECT_THAT(log_, HasSubstr("4 sentences"));
  for (const int ranks : {2, 3}) EXPECT_EQ(*Translate(Options(), input, ranks), *reference) << ranks << " ranks";
  TranslateOptions options = Options();
  options.buffer_lines = 1;
  options.decoder.sentences = 1;
  EXPECT_EQ(*Translate(options, input), *reference);
  // One line alone, without its newline.
  EXPECT_EQ(*Translate(Options(), Sentences()[2]), lines[2] + "\n");
  EXPECT_EQ(*Translate(Options(), ""), "");
}

TEST_F(TranslateTest, ReadsAndWritesFilesAndAnyLayoutsCheckpoint) {
  const std::string input = Lines(Sentences());
  const std::string reference = *Translate(Options(), input);
  TranslateOptions options = Options();
  options.input = directory_ / "in.txt";
  options.output = directory_ / "out.txt";
  SetContents(options.input, "\xEF\xBB\xBF" + input);
  ASSERT_TRUE(Translate(options, "not read").ok());
  EXPECT_EQ(Contents(options.output), reference);
  ASSERT_TRUE(Translate(options, "not read").ok());
  EXPECT_EQ(Contents(options.output), reference) << "what was there is replaced";
  options.checkpoint = directory_ / "nowhere";
  EXPECT_FALSE(Translate(options, "not read").ok());
  EXPECT_EQ(Contents(options.output), reference) << "and kept where there is no model";
  std::filesystem::remove_all(directory_ / "run");
  Save(/*shared=*/false, /*ranks=*/3);
  TranslateOptions direct = Options();
  direct.checkpoint = directory_ / "run/checkpoints/step_00000120";
  EXPECT_EQ(*Translate(direct, input), reference);
}

TEST_F(TranslateTest, ScoresAgreeWithScoringTheTranslations) {
  TranslateOptions options = Options();
  options.nbest = 3;
  options.print_scores = true;
  const std::string printed = *Translate(options, Lines(Sentences()));
  std::string sources, targets;
  std::vector<double> scores;
  for (const auto line : absl::StrSplit(printed, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    ASSERT_EQ(fields.size(), 3u) << line;
    absl::StrAppend(&sources, Sentences()[std::stoi(fields[0]) - 1], "\n");
    scores.push_back(std::stod(fields[1]));
    absl::StrAppend(&targets, fields[2], "\n");
    if (scores.size() % 3 == 1) {
      EXPECT_EQ(fields[2], MeaningOf(std::stoi(fields[0]) - 1));
    }
  }
  EXPECT_EQ(scores.size(), 3 * Sentences().size());
  const std::vector<std::pair<double, int>> full = Score(sources, targets);
  ASSERT_EQ(full.size(), scores.size());
  for (size_t i = 0; i < scores.size();
       i += 3) {  // the best ones: what was learned, cut into the pieces it was learned in
    EXPECT_NEAR(full[i].first / std::pow(full[i].second, 0.6), scores[i], 1e-4);
    EXPECT_GE(scores[i], scores[i + 1]);
  }
  EXPECT_EQ(Score(sources, targets, 3), full);
}

TEST_F(TranslateTest, APairsScoreDoesNotDependOnItsNeighbours) {
  const std::string sources = Lines(Sentences());
  const std::string targets = Lines({Sentences()[1], Sentences()[0], "", Sentences()[2], "x"});
  const std::vector<std::pair<double, int>> together = Score(sources, targets);
  ASSERT_EQ(together.size(), 5u);
  EXPECT_EQ(together[2].second, 1);  // </s> alone
  EXPECT_EQ(Score(Sentences()[3] + "\n", Sentences()[2] + "\n")[0], together[3]);
}

TEST_F(TranslateTest, OverLongInputIsAnErrorOrACountedSkip) {
  std::string longest;
  for (int i = 0; i < 70; ++i) longest += "mat ";
  const std::string input = Lines({Sentences()[1], longest, Sentences()[2]});
  const absl::Status refused = Translate(Options(), input, 2).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("line 2 has"));
  TranslateOptions options = Options();
  options.over_long = OverLong::kSkip;
  const std::vector<std::string> lines = absl::StrSplit(*Translate(options, input), '\n');
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1], "");
  EXPECT_THAT(log_, HasSubstr("skipped 1 sentences"));
}

// Σ log p / length^penalty, of up to a·x + b tokens, and of how many hypotheses: all four are the run's.
TEST_F(TranslateTest, BeamSearchIsTheRunsUnlessAskedForOtherwise) {
  std::filesystem::remove_all(directory_ / "run");
  Save(/*shared=*/true, /*ranks=*/1, "seed: 3 decode { beam: 2 length_penalty: 0 max_length_a: 0.25 max_length_b: 1 }");
  TranslateOptions options{.checkpoint = directory_ / "run"};
  options.print_scores = true;
  const auto translate = [&] { return *Translate(options, Sentences()[2] + "\n"); };
  const std::string of_config = translate();
  EXPECT_THAT(log_, HasSubstr("beam 2"));
  options.beam = {.beam = 2, .length_penalty = 0, .max_length_a = 0.25, .max_length_b = 1};
  EXPECT_EQ(translate(), of_config);
  const auto differs = [&](BeamChoices choices) {
    options.beam = choices;
    return translate() != of_config;
  };
  EXPECT_TRUE(differs({.length_penalty = 1}));
  EXPECT_TRUE(differs({.max_length_a = 3}));
  EXPECT_TRUE(differs({.max_length_b = 40}));
  EXPECT_TRUE(differs({.max_length_b = 40, .min_length = 30}));
  options.beam = {.beam = 3};
  translate();
  EXPECT_THAT(log_, HasSubstr("beam 3"));
  options.beam = {};
  options.nbest = 3;
  EXPECT_THAT(std::string(Translate(options, "").status().message()), HasSubstr("--nbest 3 is outside 1 … beam = 2"));
}

TEST_F(TranslateTest, AConfigOfAnotherVersionIsRefused) {
  std::filesystem::remove_all(directory_ / "run");
  Save(/*shared=*/true, /*ranks=*/2, "decode { beams: 2 }");
  const absl::Status status = Translate(Options(), "", 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* said : {"step_00000120", "use the version that wrote it", "beams"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(said));
  }
}

TEST_F(TranslateTest, NamesWhatIsWrong) {
  const auto message = [&](const TranslateOptions& options, const std::string& input) {
    return std::string(Translate(options, input).status().message());
  };
  EXPECT_THAT(message(Options(), "good\nbad \xFF\n"), HasSubstr("standard input:2: not UTF-8 from byte 5"));
  TranslateOptions options = Options();
  options.checkpoint = directory_ / "nothing";
  EXPECT_THAT(message(options, ""), HasSubstr("neither a checkpoint"));
  options = Options();
  std::filesystem::copy(directory_ / "run", directory_ / "hurt", std::filesystem::copy_options::recursive);
  std::filesystem::remove(directory_ / "hurt/checkpoints/step_00000120/rank_00000.safetensors");
  options.checkpoint = directory_ / "hurt/checkpoints/step_00000120";
  EXPECT_THAT(message(options, ""), AllOf(HasSubstr("rank_00000.safetensors is missing"), HasSubstr("verify RUN_DIR")));
  options = Options();
  options.nbest = 5;
  EXPECT_THAT(message(options, ""), HasSubstr("--nbest 5"));
  options = Options();
  options.beam.seed = 5;
  EXPECT_THAT(message(options, ""), HasSubstr("--seed is of samples"));
  options = Options();
  options.input = directory_ / "missing.txt";
  EXPECT_THAT(message(options, ""), HasSubstr("missing.txt"));
}

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
  constexpr int64_t kSteps = 200;
  for (int64_t step = 0; step < kSteps; ++step) {
    const StepScalars scalars{
        .step = step, .update = step + 1, .gradient_scale = 1.0f / static_cast<float>(batch.target_rows())};
    HADAL_RETURN_IF_ERROR(engine.TrainingStep({&batch, 1}, scalars, {.learning_rate = 4e-3}).status());
  }
  return kSteps;
}

TEST_F(TranslateTest, ADirectionSetsTheTags) {
  const Vocabulary vocabulary = *AddLanguageTags(MakeVocabulary(), {"de", "en", "fr"});
  std::filesystem::remove_all(directory_ / "run");
  const absl::Status saved = SaveModel({.model = TinyModel(vocabulary.size()),
                                        .vocabularies = {VocabularyFile("vocabulary", vocabulary)},
                                        .ranks = 1,
                                        .train = [&](Engine& engine) { return LearnDirections(vocabulary, engine); }},
                                       directory_ / "run");
  ASSERT_TRUE(saved.ok()) << saved;
  TranslateOptions options = Options();
  options.tags = LanguageTags::kM2m100;
  options.direction = "en-de";
  EXPECT_EQ(*Translate(options, Lines({Sentences()[0], Sentences()[1]})), Lines({MeaningOf(0), MeaningOf(1)}));
  options.direction = "en-fr";
  EXPECT_EQ(*Translate(options, Lines({Sentences()[0], Sentences()[1]})), Lines({Sentences()[0], Sentences()[1]}));
  options.json = true;
  EXPECT_THAT(*Translate(options, Lines({Sentences()[0]})), HasSubstr("\"tokens\":[\"__fr__\","));
  options.direction = "en-es";
  EXPECT_THAT(std::string(Translate(options, "a\n").status().message()),
              HasSubstr("no language tag __es__; it has __de__, __en__, __fr__"));
  options.direction = "";
  EXPECT_THAT(std::string(Translate(options, "a\n").status().message()), HasSubstr("are given together"));
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

TEST(TranslateOptionsTest, CommandLine) {
  CommandLine line("translate", "");
  TranslateOptions options;
  AddTranslateOptions(line.program(), options);
  ASSERT_EQ(line.Run({"run",         "--beam",      "7",       "--length-penalty",
                      "1.1",         "--max-len-a", "1.5",     "--max-len-b",
                      "10",          "--nbest",     "2",       "--print-scores",
                      "--on-long",   "skip",        "--join",  "bpe",
                      "--cache-mib", "64",          "--batch", "8"}),
            CommandLine::Outcome::kRan);
  EXPECT_EQ(options.checkpoint, "run");
  EXPECT_EQ(options.beam.beam, 7);
  EXPECT_EQ(options.beam.length_penalty, 1.1);
  EXPECT_EQ(options.beam.max_length_a, 1.5);
  EXPECT_EQ(options.beam.max_length_b, 10);
  EXPECT_EQ(options.beam.min_length, std::nullopt);
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
