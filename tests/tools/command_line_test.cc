#include "tools/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hadal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

enum class Fruit { kApple, kPear };

// A program with one command, `work`, and what its options set.
class CommandLineTest : public testing::Test {
 protected:
  CommandLineTest() {
    Command command = line_.program().AddCommand("work", "Does the work");
    command.AddOption("PLACE", place_, "Where").Required();
    const CommandOption count = command.AddOption("-n,--count", count_, "How many").InRange(1, 9).ShowDefault();
    command.AddOption("--share PART", share_, "Of all").InRange(0.0, 1.0).Excludes(count);
    command.AddOption("--kind", kind_, "Which").OneOf({"big", "small"}).Needs(count);
    command.AddOption("--name", names_, "Whose").OneValueEach();
    command.AddOption("--rows", rows_, "As many").SplitAt(',');
    command.AddOption("--even", even_, "No odd number").Checked([](const std::string& value) -> std::string {
      return value.back() % 2 == 0 ? "" : value + " is odd";
    });
    command.AddChoice<Fruit>("--fruit", fruit_, "What", {{"apple", Fruit::kApple}, {"pear", Fruit::kPear}});
    command.AddSetter<int64_t>(
        "--kib", [this](const int64_t& kib) { bytes_ = kib << 10; }, "Memory");
    command.AddOption("--seed", seed_, "Of what is random");
    command.AddOption("--seeds", seeds_, "Of several");
    command.AddOption("--free", free_, "Without a range");
    command.AddFlag("--loud", loud_, "Aloud");
    command.AddFlag(
        "--quiet", [this] { quiet_ = true; }, "Without a word");
    command.Runs([this] { ++runs_; });
    line_.program().AddAnswer(
        "--motto", [] { return std::string("the deeper the better\n"); }, "Prints a motto");
  }

  // Runs `work ARGUMENTS…`; out_ and err_ are what it printed.
  CommandLine::Outcome Work(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "work");
    return Run(arguments);
  }
  CommandLine::Outcome Run(const std::vector<std::string>& arguments) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const CommandLine::Outcome outcome = line_.Run(arguments);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return outcome;
  }
  // Why `work here ARGUMENTS…` is refused, without having run.
  std::string Refusal(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "here");
    const int runs = runs_;
    EXPECT_EQ(Work(arguments), CommandLine::Outcome::kRefused);
    EXPECT_EQ(runs_, runs);
    EXPECT_EQ(out_, "");
    return err_;
  }

  CommandLine line_{"program", "What it is for"};
  std::string place_, kind_ = "big", out_, err_;
  std::vector<std::string> names_;
  std::vector<int64_t> rows_;
  std::optional<double> share_;
  uint64_t seed_ = 1;
  std::vector<uint64_t> seeds_;
  std::vector<double> free_;
  Fruit fruit_ = Fruit::kPear;
  int64_t bytes_ = 7;
  int count_ = 3, even_ = 0, runs_ = 0;
  bool loud_ = false, quiet_ = false;
};

TEST_F(CommandLineTest, SetsWhatIsGivenAndRunsTheCommand) {
  ASSERT_EQ(
      Work({"here",   "-n",     "5", "--kind=small", "--name", "a",     "--name", "b",      "--rows",
            "4,16",   "--even", "8", "--fruit",      "apple",  "--kib", "2",      "--seed", "18446744073709551615",
            "--loud", "--quiet"}),
      CommandLine::Outcome::kRan)
      << err_;
  EXPECT_EQ(runs_, 1);
  EXPECT_EQ(place_, "here");
  EXPECT_EQ(count_, 5);
  EXPECT_EQ(share_, std::nullopt);
  EXPECT_EQ(kind_, "small");
  EXPECT_THAT(names_, ElementsAre("a", "b"));
  EXPECT_THAT(rows_, ElementsAre(4, 16));
  EXPECT_EQ(even_, 8);
  EXPECT_EQ(fruit_, Fruit::kApple);
  EXPECT_EQ(bytes_, 2048);
  EXPECT_EQ(seed_, 18446744073709551615u);
  EXPECT_TRUE(loud_);
  EXPECT_TRUE(quiet_);
  EXPECT_EQ(out_ + err_, "");
}

TEST_F(CommandLineTest, WhatIsNotGivenKeepsItsValue) {
  ASSERT_EQ(Work({"here"}), CommandLine::Outcome::kRan);
  EXPECT_EQ(count_, 3);
  EXPECT_EQ(kind_, "big");
  EXPECT_EQ(fruit_, Fruit::kPear);
  EXPECT_EQ(bytes_, 7);
  EXPECT_FALSE(loud_);
  EXPECT_FALSE(quiet_);
  ASSERT_EQ(Work({"there", "--share", "0.25"}), CommandLine::Outcome::kRan);
  EXPECT_EQ(share_, 0.25);
}

TEST_F(CommandLineTest, AnOptionThatTakesOneValueEachLeavesTheNextWordToArguments) {
  ASSERT_EQ(Work({"--name", "a", "here"}), CommandLine::Outcome::kRan) << err_;
  EXPECT_EQ(place_, "here");
  EXPECT_THAT(names_, ElementsAre("a"));
  EXPECT_EQ(Work({"--name", "a", "here", "there"}), CommandLine::Outcome::kRefused) << "two places";
}

TEST_F(CommandLineTest, RefusesWithTheReason) {
  EXPECT_THAT(Refusal({"--count", "10"}), HasSubstr("Value 10 not in range 1 to 9"));
  EXPECT_THAT(Refusal({"--count", "0"}), HasSubstr("Value 0 not in range 1 to 9"));
  EXPECT_THAT(Refusal({"--count", "x"}), HasSubstr("--count"));
  EXPECT_THAT(Refusal({"--count", "1", "--count", "2"}), HasSubstr("--count"));
  EXPECT_THAT(Refusal({"--share", "1.5"}), HasSubstr("not in range"));
  EXPECT_THAT(Refusal({"--share", "0.5", "--count", "2"}), HasSubstr("--count excludes --share"));
  EXPECT_THAT(Refusal({"--kind", "big"}), HasSubstr("--kind requires --count"));
  EXPECT_THAT(Refusal({"--kind", "middle", "--count", "2"}), HasSubstr("middle not in {big,small}"));
  EXPECT_THAT(Refusal({"--even", "3"}), HasSubstr("3 is odd"));
  EXPECT_THAT(Refusal({"--fruit", "appel"}), HasSubstr("\"appel\" is not one of apple, pear; did you mean \"apple\"?"));
  EXPECT_THAT(Refusal({"--kib", "much"}), HasSubstr("--kib"));
  EXPECT_THAT(Refusal({"--seed", "-1"}), HasSubstr("Value -1 is negative"));
  EXPECT_THAT(Refusal({"--seeds", "1", "-1"}), HasSubstr("Value -1 is negative"));
  for (const char* value : {"nan", "-nan", "inf", "1e999", "x"}) {
    EXPECT_THAT(Refusal({absl::StrCat("--share=", value)}),
                HasSubstr(absl::StrCat("Value ", value, " is not a finite number")));
    EXPECT_THAT(Refusal({absl::StrCat("--free=", value)}), HasSubstr("is not a finite number"));
    EXPECT_THAT(Refusal({absl::StrCat("--count=", value)}), HasSubstr("is not an integer"));
    EXPECT_THAT(Refusal({absl::StrCat("--kib=", value)}), HasSubstr("is not an integer"));
  }
  EXPECT_THAT(Refusal({"--nmae=a"}), HasSubstr("did you mean --name?"));
  EXPECT_THAT(Refusal({"there"}), HasSubstr("there"));
  EXPECT_EQ(Work({}), CommandLine::Outcome::kRefused);
  EXPECT_THAT(err_, HasSubstr("PLACE is required"));
}

TEST_F(CommandLineTest, AnswersOnStandardOutputAndRunsNothing) {
  EXPECT_EQ(Run({"--motto"}), CommandLine::Outcome::kAnswered);
  EXPECT_EQ(out_, "the deeper the better\n");
  EXPECT_EQ(Work({"--help"}), CommandLine::Outcome::kAnswered);
  EXPECT_THAT(out_, testing::AllOf(HasSubstr("-n,--count INT:INT in [1 - 9]=3"), HasSubstr("--share PART"),
                                   HasSubstr("--fruit apple|pear")));
  EXPECT_EQ(err_, "");
  EXPECT_EQ(runs_, 0);
}

TEST_F(CommandLineTest, ACommandMayBeRequired) {
  EXPECT_EQ(Run({}), CommandLine::Outcome::kRan);
  line_.program().RequireCommand();
  EXPECT_EQ(Run({}), CommandLine::Outcome::kRefused);
  EXPECT_THAT(err_, HasSubstr("subcommand is required"));
  line_.program().FindCommand("work").AddCommand("harder", "");
  EXPECT_EQ(Work({"here", "harder"}), CommandLine::Outcome::kRan);
}

TEST_F(CommandLineTest, NamesItsCommandsInTheOrderOfTheirAdding) {
  line_.program().AddCommand("rest", "Does nothing");
  EXPECT_THAT(line_.CommandNames(), ElementsAre("work", "rest"));
  EXPECT_THAT(line_.Help(), testing::AllOf(HasSubstr("What it is for"), HasSubstr("Does the work")));
}

TEST_F(CommandLineTest, WhatTheCommandThrowsIsThrown) {
  line_.program().AddCommand("fail", "").Runs([] { throw std::string("torn"); });
  EXPECT_THROW(line_.Run({"fail"}), std::string);
}

}  // namespace
}  // namespace hadal
