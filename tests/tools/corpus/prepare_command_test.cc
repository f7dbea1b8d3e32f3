// The command line of `hadal prepare`.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/command_runner.h"
#include "tests/tools/corpus/prepare_fixture.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

TEST_F(PrepareTest, TheCommandLineSetsTheOptions) {
  WriteLongText();
  const std::string arguments =
      absl::StrCat("prepare --train ", Path("train.en"), " ", Path("train.de"), " --train ", Path("train.en"), " ",
                   Path("train.de"), " --out ", Path("out"), " --vocab-size 90 --vocab-type unigram --separate");
  const CommandResult prepared = RunCommand(AddPrepareCommand, arguments);
  ASSERT_EQ(prepared.exit_code, 0) << prepared.err;
  EXPECT_THAT(prepared.out, HasSubstr("two unigram vocabularies of 90"));
  EXPECT_EQ(OpenCorpus("train").size(), 200);

  const CommandResult again = RunCommand(AddPrepareCommand, arguments);
  EXPECT_THAT(again.err, HasSubstr("hadal prepare: "));
  EXPECT_EQ(again.exit_code, 1);
}

TEST_F(PrepareTest, TheCommandLinePairsFilesUnlessTheyArePlainText) {
  WriteLongText();
  const auto run = [&](const std::string& arguments) {
    const CommandResult result =
        RunCommand(AddPrepareCommand, absl::StrCat("prepare --out ", Path("out"), " --vocab-size 90 ", arguments));
    out_.str(result.err + result.out);
    return result.exit_code;
  };
  EXPECT_EQ(run(absl::StrCat("--train ", Path("train.en"))), 2);
  EXPECT_THAT(out_.str(), HasSubstr("--monolingual"));
  ASSERT_EQ(run(absl::StrCat("--train ", Path("train.en"), " --valid ", Path("train.de"), " --monolingual")), 0);
  EXPECT_EQ(OpenCorpus("train").size(), 100);
  EXPECT_TRUE(OpenCorpus("valid").manifest().monolingual());
}

TEST_F(PrepareTest, EachOptionOfTheCommandLineSetsItsOwn) {
  const auto run = [&](const std::string& arguments) {
    const std::string pair = absl::StrCat(Path("train.en"), " ", Path("train.de"));
    const CommandResult result = RunCommand(
        AddPrepareCommand, absl::StrCat("prepare --overwrite --out ", Path("out"), " --train ", pair, " ", arguments));
    out_.str(result.err + result.out);
    return result.exit_code;
  };
  const std::string small = "--vocab-size 45 ";
  Write("train.en", "The cat sleeps.\n\nA man reads.\n");
  EXPECT_EQ(run(small), 0) << out_.str();
  EXPECT_EQ(run(small + "--on-empty skip --on-invalid error --on-long error"), 0) << out_.str();
  EXPECT_EQ(run(small + "--on-empty error"), 2);
  EXPECT_THAT(out_.str(), HasSubstr("train.en:2"));
  Write("train.en", "The cat sleeps.\nb\xFF\nA man reads.\n");
  EXPECT_EQ(run(small + "--on-empty skip --on-long skip"), 2);
  EXPECT_EQ(run(small + "--on-invalid skip --on-empty error --on-long error"), 0) << out_.str();
  Write("train.en", absl::StrCat("a\n", kEnglish));
  Write("train.de", absl::StrCat("a\n", kGerman));
  const std::string short_ones = "--vocab-size 60 --max-tokens 2 ";
  EXPECT_EQ(run(short_ones + "--on-empty error --on-invalid error"), 0) << out_.str();
  EXPECT_EQ(OpenCorpus("train").size(), 1);
  EXPECT_EQ(run(short_ones + "--max-skipped 0.5"), 2);
  EXPECT_THAT(out_.str(), HasSubstr("50% that --max-skipped allows"));
  EXPECT_EQ(run(short_ones + "--on-long error"), 2);
  EXPECT_THAT(out_.str(), HasSubstr("the limit is 2"));

  Write("en.txt", "The 3\ncat 2\n");
  Write("de.txt", "Die 3\nKatze 2\n");
  const std::string both = absl::StrCat("--source-vocab ", Path("en.txt"), " --target-vocab ", Path("de.txt"));
  EXPECT_EQ(run(both), 0) << out_.str();
  EXPECT_EQ(Read("out/source.txt"), Read("en.txt"));
  EXPECT_EQ(Read("out/target.txt"), Read("de.txt"));
  for (const char* side : {"--source-vocab ", "--target-vocab "}) {
    EXPECT_EQ(run(absl::StrCat(side, Path("en.txt"))), 2);
    EXPECT_THAT(out_.str(), HasSubstr(absl::StrCat(side, "is given for one side only; give --")));
  }
  const std::string more = absl::StrCat(" --test ", Path("train.en"), " ", Path("train.de"));
  EXPECT_EQ(run(absl::StrCat("--vocab ", Path("de.txt"), more)), 0) << out_.str();
  EXPECT_EQ(Read("out/vocabulary.txt"), Read("de.txt"));
  EXPECT_EQ(OpenCorpus("test").size(), 4);
  EXPECT_EQ(run(absl::StrCat("--vocab ", Path("de.txt"), more, " --drop-test-overlap")), 2);
  EXPECT_THAT(out_.str(), HasSubstr("4 of 4 (100%): 4 in validation or test text"));
  const std::string twice = absl::StrCat("--train ", Path("train.en"), " ", Path("train.de"), " --vocab-size 60 ");
  EXPECT_EQ(run(twice + "--drop-duplicates"), 2);
  EXPECT_THAT(out_.str(), HasSubstr("4 of 4 (100%): 4 duplicates; give it some"));
  EXPECT_EQ(run("--vocab-size 60 --max-length-ratio 1"), 0) << out_.str();
  EXPECT_THAT(out_.str(), HasSubstr(" with a length ratio over 1\n"));
  EXPECT_EQ(run("--vocab-size 60 --vocab-pairs 2"), 0) << out_.str();
  EXPECT_THAT(out_.str(), HasSubstr("on 2 pairs"));
  EXPECT_THAT(out_.str(), HasSubstr(" tokens for 60 ids: most ids are too rare to be learnt\n"));
}

// How a vocabulary is trained means nothing where one is given.
TEST_F(PrepareTest, AGivenVocabularyExcludesWhatTrainsOne) {
  for (const char* given : {"--vocab v", "--source-vocab v", "--target-vocab v"}) {
    for (const char* training : {"--vocab-size 90", "--vocab-type bpe", "--separate", "--character-coverage 1",
                                 "--normalization nfkc", "--vocab-pairs 5"}) {
      const CommandResult result = RunCommand(
          AddPrepareCommand, absl::StrCat("prepare --out ", Path("out"), " --train a b ", given, " ", training));
      EXPECT_EQ(result.exit_code, 2) << given << " " << training;
      EXPECT_THAT(result.err, HasSubstr("excludes")) << given << " " << training;
    }
  }
}

}  // namespace
}  // namespace hadal
