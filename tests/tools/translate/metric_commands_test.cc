#include "tools/translate/metric_commands.h"

#include <sstream>

#include "gmock/gmock.h"
#include "tests/support/command_runner.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

// sacreBLEU 2.6.0 prints these bytes for the lines of PrintsSacrebleusJson, but for "+hadal".
constexpr char kJson[] = R"json({
 "name": "BLEU",
 "score": 51.1,
 "signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0+hadal",
 "verbose_score": "84.6/63.6/44.4/28.6 (BP = 1.000 ratio = 1.000 hyp_len = 13 ref_len = 13)",
 "nrefs": "1",
 "case": "mixed",
 "eff": "no",
 "tok": "13a",
 "smooth": "exp",
 "version": "2.6.0+hadal"
}
)json";

class MetricCommandsTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    SetContents(directory_ / name, text);
    return directory_ / name;
  }
  // What the command prints.
  std::string Output(const MetricOptions& options) {
    out_.str("");
    EXPECT_TRUE(RunMetric(options, input_, out_, log_).ok());
    return out_.str();
  }
  // The message of its error; it prints nothing.
  std::string Error(const MetricOptions& options) {
    out_.str("");
    const absl::Status status = RunMetric(options, input_, out_, log_);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(out_.str(), "");
    return std::string(status.message());
  }
  const TemporaryDirectory directory_;
  std::istringstream input_;
  std::ostringstream out_, log_;
};

TEST_F(MetricCommandsTest, PrintsSacrebleusJson) {
  const MetricOptions options = {.references = {Write("ref", "The cat is on the mat.\nYes, 1,000 of them!\n")}};
  input_.str("The cat sat on the mat.\nYes, 1,000 of us!\n");
  EXPECT_EQ(Output(options), kJson);
  EXPECT_EQ(log_.str(), "");
}

TEST_F(MetricCommandsTest, PrintsALineOrTheNumberAlone) {
  MetricOptions options = {.references = {Write("ref", "a b c d e\n")},
                           .hypotheses = Write("hyp", "a b c d\r\n"),
                           .format = MetricFormat::kText,
                           .digits = 2};
  EXPECT_EQ(Output(options),
            "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0+hadal = 77.88 100.0/100.0/100.0/100.0 "
            "(BP = 0.779 ratio = 0.800 hyp_len = 4 ref_len = 5)\n");
  options.format = MetricFormat::kScoreOnly;
  EXPECT_EQ(Output(options), "77.88\n");
}

// Scores and signatures are those of sacreBLEU 2.6.0.
TEST_F(MetricCommandsTest, SeveralReferences) {
  MetricOptions options = {.references = {Write("one", "The cat is on the mat.\nYes, 1,000 of them!\n"),
                                          Write("two", "A cat sat on a mat.\nYes, one thousand of us!\n")},
                           .hypotheses = Write("hyp", "The cat sat on the mat.\nYes, 1,000 of us!\n"),
                           .format = MetricFormat::kText,
                           .digits = 2};
  EXPECT_EQ(Output(options),
            "BLEU|nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0+hadal = 66.06 100.0/100.0/66.7/28.6 "
            "(BP = 1.000 ratio = 1.000 hyp_len = 13 ref_len = 13)\n");
  options.metric = Metric::kChrf;
  EXPECT_EQ(Output(options), "chrF2|nrefs:2|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0+hadal = 66.27\n");
}

TEST_F(MetricCommandsTest, WarnsOfLinesThatAreNoSentences) {
  const MetricOptions options = {.references = {Write("ref", "The cat sat.\nIt's 3.5.\n")}};
  const auto said = [&](const std::string& lines) {
    log_.str("");
    input_.clear();
    input_.str(lines);
    EXPECT_THAT(Output(options), HasSubstr("\"score\"")) << "and scores";
    return log_.str();
  };
  EXPECT_EQ(said("The cat sat.\nIt's 3.5.\n"), "");
  EXPECT_EQ(said("The cat sat .\n3.5\tis it.\n"), "") << "one line may be so";
  EXPECT_EQ(said("T-shirts\tare red.\nS-Bahn\tgoes.\n"), "") << "no lines of fairseq-generate";
  const std::string warning = "warning: most lines of standard input look like ";
  EXPECT_THAT(said("{\"line\":1}\n{\"line\":2}\n"), HasSubstr(warning + "JSON"));
  EXPECT_THAT(said("-1.5\tThe cat sat.\n-2\tIt's 3.5.\n"), HasSubstr("`cut -f2-`"));
  EXPECT_THAT(said("H-0\t-0.5\tThe cat\nH-1\t-0.7\tIt's\n"), HasSubstr("fairseq-generate"));
  EXPECT_THAT(said("Th@@ e cat\nIt@@ 's\n"), HasSubstr("pieces of words"));
  EXPECT_THAT(said("▁The ▁cat\n▁It 's\n"), HasSubstr("pieces of words"));
  EXPECT_THAT(said("The cat sat .\nIt 's 3.5 .\n"), HasSubstr("tokenised text"));
  input_.clear();
  input_.str("The cat sat.\nA cat.\nIt's 3.5.\nIt's.\n");
  EXPECT_THAT(Error(options), HasSubstr("--nbest prints several"));
  input_.clear();
  input_.str("The cat sat.\nA cat.\nIt's 3.5.\n");
  EXPECT_THAT(Error(options), ::testing::Not(HasSubstr("--nbest"))) << "three lines are not several of each of two";
  input_.clear();
  input_.str("The cat sat.\nIt's 3.5.\n");
  EXPECT_THAT(Output({.metric = Metric::kChrf, .references = options.references}),
              ::testing::Not(HasSubstr("verbose_score")));
}

TEST_F(MetricCommandsTest, WarnsOfTextWithoutSpacesBetweenWords) {
  const std::string chinese = Write("zh", "我们昨天在公园里看到了一只黑色的猫。\n你好！\n");
  MetricOptions options = {.references = {Write("en", "We saw a black cat.\nHello!\n"), chinese},
                           .hypotheses = chinese};
  EXPECT_THAT(Output(options), HasSubstr("\"score\"")) << "and scores";
  EXPECT_THAT(log_.str(), HasSubstr("warning: the references put no spaces between words"));
  EXPECT_THAT(log_.str(), HasSubstr("hadal bleu --tokenize"));
  log_.str("");
  options.metric = Metric::kWer;
  options.references = {chinese};
  Output(options);
  EXPECT_THAT(log_.str(), HasSubstr("a sentence counts as one word"));
}

TEST_F(MetricCommandsTest, DoesNotWarnOfSuchTextWhereSpacesDoNotMatter) {
  const std::string chinese = Write("zh", "我们昨天在公园里看到了一只黑色的猫。\n你好！\n");
  MetricOptions options = {.references = {chinese}, .hypotheses = chinese, .tokenizer = BleuTokenizer::kZh};
  Output(options);
  options.tokenizer = BleuTokenizer::kChar;
  Output(options);
  options.metric = Metric::kChrf;
  Output(options);
  options.metric = Metric::kWer;
  options.characters = true;
  Output(options);
  EXPECT_EQ(log_.str(), "");
}

TEST_F(MetricCommandsTest, EveryMetricHasItsNameSignatureAndDefaults) {
  const std::string reference = Write("ref", "abc\n"), hypothesis = Write("hyp", "abd\n");
  MetricOptions options = {.metric = Metric::kChrf,
                           .references = {reference},
                           .hypotheses = hypothesis,
                           .format = MetricFormat::kText,
                           .word_order = 2};
  EXPECT_EQ(Output(options), "chrF2++|nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|version:2.6.0+hadal = 29.2\n");
  options.metric = Metric::kWer;
  EXPECT_EQ(Output(options),
            "WER|nrefs:1|case:mixed|tok:space|version:jiwer-4.0.0+hadal = 1.0 (errors = 1 ref_len = 1)\n");
  options.characters = true;
  options.digits = 4;
  EXPECT_EQ(Output(options),
            "CER|nrefs:1|case:mixed|tok:char|version:jiwer-4.0.0+hadal = 0.3333 (errors = 1 ref_len = 3)\n");
  options.references.push_back(reference);
  EXPECT_THAT(Error(options), HasSubstr("WER takes one reference, and 2"));
}

// As in sacreBLEU: 4 of 5 words, 3 of 4 pairs, 2 of 3 and 1 of 2 longer ones are right, 100·(4/5·3/4·2/3·1/2)^(1/4).
TEST_F(MetricCommandsTest, AByteOrderMarkIsAPartOfTheFirstWord) {
  const MetricOptions options = {.references = {Write("marked",
                                                      "\xEF\xBB\xBF"
                                                      "a b c d e\n")},
                                 .hypotheses = Write("unmarked", "a b c d e\n"),
                                 .format = MetricFormat::kScoreOnly};
  EXPECT_EQ(Output(options), "66.9\n");
  EXPECT_THAT(log_.str(), HasSubstr("marked begins with a byte order mark"));
}

TEST_F(MetricCommandsTest, NamesTheFileAndLineOfBadInput) {
  const std::string good = Write("good", "a\nb\n");
  const std::string bad = Write("bad", "a\nb\xFF\n");
  EXPECT_THAT(Error({.references = {bad}, .hypotheses = good}), HasSubstr(bad + ":2: not UTF-8 from byte 2"));
  EXPECT_THAT(Error({.references = {Write("three", "a\nb\nc\n")}, .hypotheses = good}),
              HasSubstr("has 3 lines, but there are 2 hypotheses"));
  EXPECT_THAT(Error({.references = {"/nonexistent/ref"}, .hypotheses = good}), HasSubstr("/nonexistent/ref"));
  EXPECT_THAT(Error({.references = {good}, .hypotheses = Write("empty", "")}), HasSubstr("is empty"));
  const std::string longest(131072, 'a');
  EXPECT_THAT(Error({.metric = Metric::kWer,
                     .references = {good},
                     .hypotheses = Write("long", longest + "\na" + longest + "\n")}),
              HasSubstr("long:2: a line of 131073 bytes; at most 131072"));
}

TEST_F(MetricCommandsTest, StoresTheExitCode) {
  EXPECT_EQ(RunCommand(AddBleuCommand, "bleu -r /nonexistent/ref -i /nonexistent/hyp").exit_code, 2);
  for (const auto& [words, said] : {std::pair("bleu -i hyp", "--reference is required"),
                                    {"bleu -r ref --json --text", "--json excludes --text"},
                                    {"bleu -r ref --tokenize intl", "intl"}}) {
    const CommandResult refused = RunCommand(AddBleuCommand, words);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, HasSubstr(said));
  }
  EXPECT_EQ(RunCommand(AddChrfCommand, "chrf -r ref --word-order 3").exit_code, 2);
  EXPECT_EQ(RunCommand(AddWerCommand, "wer -r /nonexistent/ref -i /nonexistent/hyp").exit_code, 2);
}

// As an option, and in the places where people put them.
TEST_F(MetricCommandsTest, TakesTheTranslationsWithAndWithoutAnOption) {
  const std::string text = Write("text", "a b c d e\n");
  for (const std::string& words :
       {"-r " + text + " -i " + text, text + " --reference " + text, "-r " + text + " " + text}) {
    EXPECT_EQ(RunCommand(AddBleuCommand, "bleu --score-only " + words).exit_code, 0) << words;
  }
}

}  // namespace
}  // namespace hadal
