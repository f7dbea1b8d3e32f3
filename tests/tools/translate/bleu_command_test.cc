#include "tools/translate/bleu_command.h"

#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

class BleuCommandTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    SetContents(directory_ / name, text);
    return directory_ / name;
  }
  const TemporaryDirectory directory_;
  std::istringstream input_;
  std::ostringstream out_, log_;
};

TEST_F(BleuCommandTest, PrintsSacrebleusJson) {
  const BleuCommandOptions options = {.references = {Write("ref", "The cat is on the mat.\nYes, 1,000 of them!\n")}};
  input_.str("The cat sat on the mat.\nYes, 1,000 of us!\n");
  ASSERT_TRUE(RunBleu(options, input_, out_, log_).ok());
  EXPECT_EQ(out_.str(), kJson);
  EXPECT_EQ(log_.str(), "");
}

TEST_F(BleuCommandTest, PrintsALineOrTheNumberAlone) {
  BleuCommandOptions options = {.references = {Write("ref", "a b c d e\n")},
                                .hypotheses = Write("hyp", "a b c d\r\n"),
                                .format = BleuFormat::kText,
                                .digits = 2};
  ASSERT_TRUE(RunBleu(options, input_, out_, log_).ok());
  EXPECT_EQ(out_.str(),
            "BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0+hadal = 77.88 100.0/100.0/100.0/100.0 "
            "(BP = 0.779 ratio = 0.800 hyp_len = 4 ref_len = 5)\n");
  out_.str("");
  options.format = BleuFormat::kScoreOnly;
  ASSERT_TRUE(RunBleu(options, input_, out_, log_).ok());
  EXPECT_EQ(out_.str(), "77.88\n");
}

TEST_F(BleuCommandTest, WarnsOfTextWithoutSpacesBetweenWords) {
  const std::string chinese = Write("zh", "我们昨天在公园里看到了一只黑色的猫。\n你好！\n");
  const BleuCommandOptions options = {.references = {Write("en", "We saw a black cat.\nHello!\n"), chinese},
                                      .hypotheses = chinese};
  ASSERT_TRUE(RunBleu(options, input_, out_, log_).ok());
  EXPECT_THAT(log_.str(), HasSubstr("warning: the references put no spaces between words"));
  EXPECT_THAT(log_.str(), HasSubstr("sacrebleu --tokenize zh"));
  EXPECT_THAT(out_.str(), HasSubstr("\"score\"")) << "and scores";
}

// As in sacreBLEU: 4 of 5 words, 3 of 4 pairs, 2 of 3 and 1 of 2 longer ones are right, 100·(4/5·3/4·2/3·1/2)^(1/4).
TEST_F(BleuCommandTest, AByteOrderMarkIsAPartOfTheFirstWord) {
  const BleuCommandOptions options = {.references = {Write("marked",
                                                           "\xEF\xBB\xBF"
                                                           "a b c d e\n")},
                                      .hypotheses = Write("unmarked", "a b c d e\n"),
                                      .format = BleuFormat::kScoreOnly};
  ASSERT_TRUE(RunBleu(options, input_, out_, log_).ok());
  EXPECT_EQ(out_.str(), "66.9\n");
  EXPECT_THAT(log_.str(), HasSubstr("marked begins with a byte order mark"));
}

TEST_F(BleuCommandTest, NamesTheFileAndLineOfBadInput) {
  const std::string good = Write("good", "a\nb\n");
  const std::string bad = Write("bad", "a\nb\xFF\n");
  absl::Status status = RunBleu({.references = {bad}, .hypotheses = good}, input_, out_, log_);
  EXPECT_THAT(std::string(status.message()), HasSubstr(bad + ":2: not UTF-8 from byte 2"));
  status = RunBleu({.references = {Write("three", "a\nb\nc\n")}, .hypotheses = good}, input_, out_, log_);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has 3 lines, but there are 2 hypotheses"));
  status = RunBleu({.references = {"/nonexistent/ref"}, .hypotheses = good}, input_, out_, log_);
  EXPECT_TRUE(absl::IsNotFound(status));
  status = RunBleu({.references = {good}, .hypotheses = Write("empty", "")}, input_, out_, log_);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is empty"));
  EXPECT_EQ(out_.str(), "");
}

TEST_F(BleuCommandTest, StoresTheExitCode) {
  EXPECT_EQ(RunCommand(AddBleuCommand, "bleu -r /nonexistent/ref -i /nonexistent/hyp").exit_code, 2);
  const CommandResult without_reference = RunCommand(AddBleuCommand, "bleu -i hyp");
  EXPECT_EQ(without_reference.exit_code, 2);
  EXPECT_THAT(without_reference.err, HasSubstr("--reference is required"));
  const CommandResult two_formats = RunCommand(AddBleuCommand, "bleu -r ref --json --text");
  EXPECT_EQ(two_formats.exit_code, 2);
  EXPECT_THAT(two_formats.err, HasSubstr("--json excludes --text"));
}

// As an option, and in the places where people put them.
TEST_F(BleuCommandTest, TakesTheTranslationsWithAndWithoutAnOption) {
  const std::string text = Write("text", "a b c d e\n");
  for (const std::string& words :
       {"-r " + text + " -i " + text, text + " --reference " + text, "-r " + text + " " + text}) {
    EXPECT_EQ(RunCommand(AddBleuCommand, "bleu --score-only " + words).exit_code, 0) << words;
  }
}

}  // namespace
}  // namespace hadal
