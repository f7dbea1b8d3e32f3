// Text to text from a checkpoint alone, on any number of ranks; and what `hadal score` says of it.
#include "tools/translate/translate.h"

#include <cmath>
#include <filesystem>
#include <sstream>
#include <streambuf>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/files.h"
#include "tests/support/temporary_directory.h"
#include "tests/tools/translate/translate_fixture.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

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
  const std::string reference = Translate(Options(), input).value();
  const std::vector<std::string> lines = absl::StrSplit(reference, '\n');
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines, (std::vector<std::string>{MeaningOf(0), "", MeaningOf(2), "", MeaningOf(1), MeaningOf(3), ""}));
  EXPECT_THAT(log_, HasSubstr("4 sentences"));
  EXPECT_THAT(log_, Not(HasSubstr("warning")));
  for (const int ranks : {2, 3}) EXPECT_EQ(*Translate(Options(), input, ranks), reference) << ranks << " ranks";
  TranslateOptions options = Options();
  options.buffer_lines = 1;
  options.decoder.sentences = 1;
  EXPECT_EQ(*Translate(options, input), reference);
  // One line alone, without its newline.
  EXPECT_EQ(*Translate(Options(), Sentences()[2]), lines[2] + "\n");
  EXPECT_EQ(*Translate(Options(), ""), "");
  ASSERT_TRUE(Translate(Options(), "Ж Ж Ж\n").ok());
  EXPECT_THAT(log_, HasSubstr("of the source tokens are unknown"));
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
  EXPECT_FALSE(Translate(options, "not read").ok()) << "there is one";
  options.overwrite = true;
  ASSERT_TRUE(Translate(options, "not read").ok());
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
  EXPECT_THAT(std::string(refused.message()), HasSubstr(":2 has"));
  TranslateOptions options = Options();
  options.output = directory_ / "out.txt";
  EXPECT_FALSE(Translate(options, input).ok());
  EXPECT_FALSE(PathExists(options.output));
  options.output.clear();
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
  EXPECT_TRUE(differs({.max_length_b = 40, .min_length = 30, .no_repeat_ngram = 1}));
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

}  // namespace
}  // namespace hadal
