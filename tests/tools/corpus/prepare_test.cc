// `hadal prepare` and its command line.
#include "tools/corpus/prepare.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/data/corpus.h"
#include "tests/support/command_runner.h"
#include "tests/tools/corpus/prepare_fixture.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(PrepareTest, TextRoundTripsThroughAllSplits) {
  Write("valid.en", "The fish sleeps.\n");
  Write("valid.de", "Der Fisch schläft.\n");
  options_.valid = {{Path("valid.en"), Path("valid.de")}};
  options_.test = options_.train;
  ASSERT_TRUE(Run().ok());
  const Corpus train = OpenCorpus("train");
  ASSERT_EQ(train.size(), 3);
  EXPECT_EQ(SourceText(train, 1), "The dog eats the fish.");
  EXPECT_EQ(TargetText(train, 0), "Die Katze schläft.");
  EXPECT_EQ(SourceText(OpenCorpus("valid"), 0), "The fish sleeps.");
  EXPECT_EQ(OpenCorpus("test").size(), 3);
  EXPECT_EQ(train.manifest().source_vocabulary.file, "vocabulary.model");
  EXPECT_EQ(train.manifest().target_vocabulary.file, "vocabulary.model");
  EXPECT_THAT(out_.str(), HasSubstr("wrote train: 3 pairs"));
  EXPECT_THAT(out_.str(), HasSubstr(" ids, " + Path("out/vocabulary.model")));
  EXPECT_THAT(out_.str(), HasSubstr("with the prefix " + Path("out/train")));
  EXPECT_THAT(out_.str(), HasSubstr("nothing skipped"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("removed")));
  const CorpusStatistics& all = train.manifest().statistics;
  EXPECT_THAT(out_.str(), HasSubstr(absl::StrCat("; source ", all.source_tokens, " tokens (longest ",
                                                 all.longest_source, ", none unknown), target ", all.target_tokens,
                                                 " (longest ", all.longest_target, ", none unknown); nothing")));
}

TEST_F(PrepareTest, PlainTextHasNoSource) {
  options_.monolingual = true;
  options_.train = {{"", Path("train.de")}, {"", Path("train.en")}};
  options_.training.size = 70;
  Write("train.en", absl::StrCat(kEnglish, "\n"));
  ASSERT_EQ(Run(), absl::OkStatus());
  const Corpus train = OpenCorpus("train");
  ASSERT_EQ(train.size(), 6);
  EXPECT_TRUE(train.manifest().monolingual());
  EXPECT_EQ(train.manifest().target_vocabulary.file, "vocabulary.model");
  EXPECT_FALSE(train.sample(0).has_source);
  EXPECT_TRUE(train.sample(0).source.empty());
  EXPECT_EQ(TargetText(train, 1), "Der Hund frisst den Fisch.");
  EXPECT_EQ(TargetText(train, 3), "The cat sleeps.");
  EXPECT_THAT(train.manifest().corpora, ::testing::ElementsAre("train.de", "train.en"));
  for (const char* said : {"training a BPE vocabulary of 70 ids on 6 lines", "read train: 7 lines",
                           "wrote train: 6 lines; ", "skipped 1 of 7 (14.3%): 1 empty"}) {
    EXPECT_THAT(out_.str(), HasSubstr(said));
  }
  options_.train.push_back({"", Path("train.de")});
  options_.overwrite = true;
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(OpenCorpus("train").manifest().corpora, ::testing::ElementsAre("train.de", "train.en", "train.de (2)"));
  options_.separate = true;
  EXPECT_THAT(std::string(Run().message()), HasSubstr("one vocabulary"));
}

TEST_F(PrepareTest, SameTextSameFiles) {
  ASSERT_TRUE(Run().ok());
  options_.output = Path("again");
  ASSERT_TRUE(Run().ok());
  for (const char* file : {"vocabulary.model", "train.json", "train.00000.shard"}) {
    EXPECT_EQ(Read(absl::StrCat("out/", file)), Read(absl::StrCat("again/", file))) << file;
    EXPECT_FALSE(Read(absl::StrCat("out/", file)).empty());
  }
}

TEST_F(PrepareTest, SeveralPairsCountAsCorpora) {
  Write("more.en", "A dog reads.\n");
  Write("more.de", "Ein Hund liest.\n");
  options_.train.push_back({Path("more.en"), Path("more.de")});
  ASSERT_TRUE(Run().ok());
  const Corpus train = OpenCorpus("train");
  ASSERT_EQ(train.size(), 4);
  EXPECT_EQ(train.sample(2).corpus_id, 0);
  EXPECT_EQ(train.sample(3).corpus_id, 1);
  EXPECT_THAT(train.manifest().corpora, ::testing::ElementsAre("train.en / train.de", "more.en / more.de"));
}

TEST_F(PrepareTest, TextThatIsForTrainingAndForValidationIsWarnedOf) {
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), AllOf(Not(HasSubstr("source equals")), Not(HasSubstr("are also"))));
  Write("valid.en", "Another line.\nThe cat reads.\n");
  options_.valid = {{Path("valid.en"), Path("valid.en")}};
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), AllOf(Not(HasSubstr("source equals")), Not(HasSubstr("are also")))) << "not the same pair";
  options_.valid = options_.train;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("warning: 3 training pairs are also validation or test pairs;"));
  options_.valid.push_back({Path("train.en"), Path("train.en")});
  out_.str("");
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("warning: 3 training pairs are also")) << "half of what is held out";
}

TEST_F(PrepareTest, ASourceThatIsItsTargetIsWarnedOf) {
  options_.train = {{Path("train.en"), Path("train.en")}};
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("warning: the source equals the target in 100% of the training pairs;"));
  options_.train.push_back({Path("train.en"), Path("train.de")});
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("warning: the source equals the target in 50% of the training pairs;"));
}

TEST_F(PrepareTest, TargetsThatNormalizationChangesAreWarnedOf) {
  Write("wide.de", "Eine Katze！\nEin Hund？\nEine Katze.\n");
  options_.train.push_back({Path("train.en"), Path("wide.de")});
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("warning: the vocabulary's normalization changes characters in 67% of the targets "
                                    "of train.en / wide.de"));
  options_.training.normalization = "identity";
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), Not(HasSubstr("normalization")));
}

TEST_F(PrepareTest, SeveralTargetLanguagesWithoutTagsAreWarnedOf) {
  const auto pair = [&](const char* target) {
    return TextPair{.source = Path("train.en"), .target = Path("train.de"), .direction = {"en", target}};
  };
  options_.train = {pair("de"), pair("nl")};
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("warning: text in en is translated to de, nl, and without --tags"));
  options_.train = {pair("de"), {.source = Path("train.en"), .target = Path("train.de"), .direction = {"fr", "de"}}};
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), Not(HasSubstr("--tags")));
}

TEST_F(PrepareTest, OptionsThatLeaveNothingAreRefused) {
  options_.max_tokens = 1;
  ExpectError({"no line is left of the train text", "3 of 3 (100%): 3 longer than 1 tokens; raise --max-tokens 1"});
  options_.max_tokens = 100;
  options_.reserved_tags = 1;
  ExpectError({"--reserve-tags reserves", "give --tags"});
  options_.reserved_tags = 0;
  ASSERT_TRUE(Run().ok()) << "what failed is not in the way";
  options_.output.clear();
  EXPECT_THAT(std::string(Run().message()), HasSubstr("--out"));
}

TEST_F(PrepareTest, MissingFilesAndFoldersAreNamed) {
  options_.train[0].target = Path("none.de");
  ExpectError({"none.de"});
  options_.train[0].target = directory_.path();
  ExpectError({directory_.path()});
  options_.train.clear();
  ExpectError({"--train"});
}

// Nothing is said of text that was read.
TEST_F(PrepareTest, WhatNeedsNoTextIsToldBeforeAnyIsRead) {
  const auto refused_at_once = [&](const PrepareOptions& options, const std::string& what) {
    out_.str("");
    const absl::Status status = RunPrepare(options, out_);
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    EXPECT_EQ(out_.str(), "") << what;
  };
  PrepareOptions changed = options_;
  changed.training.size = 4;
  refused_at_once(changed, "a vocabulary of 4 ids has no room");
  changed = options_;
  changed.training.character_coverage = 2;
  refused_at_once(changed, "character coverage 2");
  changed = options_;
  changed.training.normalization = "none";
  refused_at_once(changed, "unknown normalization 'none'");
  changed = options_;
  changed.source_vocabulary = changed.target_vocabulary = Path("gone.model");
  refused_at_once(changed, "gone.model");
  changed.source_vocabulary = changed.target_vocabulary = Path("train.en");
  refused_at_once(changed, "train.en, line 1");
  changed = options_;
  changed.test = {{Path("train.en"), Path("gone.de")}};
  refused_at_once(changed, "gone.de");
  ASSERT_TRUE(Run().ok());
  refused_at_once(options_, "train.json already exists");
}

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
  EXPECT_EQ(again.exit_code, 2);
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
  EXPECT_THAT(out_.str(), HasSubstr("--direction de-en"));
  EXPECT_EQ(run(absl::StrCat("--direction de-en --monolingual --train ", Path("train.en"))), 2);
  ASSERT_EQ(run(absl::StrCat("--train ", Path("train.en"), " --valid ", Path("train.de"), " --monolingual")), 0);
  EXPECT_EQ(OpenCorpus("train").size(), 100);
  EXPECT_TRUE(OpenCorpus("valid").manifest().monolingual());
  Write("paragraphs", "a b\nc\n\nd\n");
  Write("lines.jsonl", "{\"body\": \"e\"}\n");
  ASSERT_EQ(run(absl::StrCat("--overwrite --monolingual --vocab-type word --block 3 --text-field body --train ",
                             Path("paragraphs"), " ", Path("lines.jsonl"))),
            0)
      << out_.str();
  EXPECT_THAT(out_.str(), HasSubstr("read train: 3 documents"));
}

TEST_F(PrepareTest, FilesOfBothSidesAreReadInADirection) {
  std::string tmx = "<tmx version=\"1.4\"><body>", json, tabs = "source\ttarget\n";
  for (int i = 0; i < 100; ++i) {
    absl::StrAppend(&tmx, "<tu><tuv xml:lang=\"de\"><seg>", GermanLine(i), "</seg></tuv><tuv xml:lang=\"en\"><seg>",
                    EnglishLine(i), "</seg></tuv></tu>");
    absl::StrAppend(&json, "{\"de\": \"", GermanLine(i), "\", \"en\": \"", EnglishLine(i), "\"}\n");
    absl::StrAppend(&tabs, GermanLine(i), "\t", EnglishLine(i), "\n");
  }
  Write("a.tmx", tmx + "</body></tmx>");
  Write("b.jsonl", json);
  Write("c.tsv", tabs);
  const CommandResult prepared =
      RunCommand(AddPrepareCommand,
                 absl::StrCat("prepare --direction de-en --train ", Path("a.tmx"), " ", Path("b.jsonl"), " ",
                              Path("c.tsv"), " --valid ", Path("a.tmx"), " --vocab-size 90 --out ", Path("out")));
  ASSERT_EQ(prepared.exit_code, 0) << prepared.err;
  const Corpus train = OpenCorpus("train");
  EXPECT_THAT(train.manifest().corpora, ElementsAre("de-en a.tmx", "de-en b.jsonl", "de-en c.tsv"));
  ASSERT_EQ(train.size(), 100 + 100 + 101);
  for (const int64_t i : {7, 107, 208}) {
    EXPECT_EQ(SourceText(train, i), GermanLine(7));
    EXPECT_EQ(TargetText(train, i), EnglishLine(7));
  }
  EXPECT_THAT(OpenCorpus("valid").manifest().corpora, ElementsAre("de-en"));
  EXPECT_THAT(prepared.out, HasSubstr("c.tsv:1 looks like a header"));
}

TEST_F(PrepareTest, SpecialTokensInTextAreWarnedOf) {
  WriteLongText();
  Write("train.en", "a <s> b\n" + Read("train.en"));
  Write("train.de", "c <s>\n" + Read("train.de"));
  options_.training.size = 90;
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(out_.str(), HasSubstr("warning: 2 lines spell <s>, </s>, <pad> or <unk>"));
  EXPECT_THAT(out_.str(), HasSubstr("it lacks < >"));
  Write("train.en", "2 < 3 > 1 / 1\n" + Read("train.en"));
  Write("train.de", "c\n" + Read("train.de"));
  options_.overwrite = true;
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(out_.str(), Not(HasSubstr("spell <s>")));
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
  EXPECT_EQ(run(small + "--on-empty skip --on-invalid error --on-long error --threads 2"), 0) << out_.str();
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
  EXPECT_EQ(run("--vocab-type word --vocab-size 0 --vocab-min-count 2"), 0) << out_.str();
  EXPECT_THAT(out_.str(), HasSubstr(": 6 ids, ")) << "special ones, a, The";
  EXPECT_EQ(run("--vocab-size 45 --character-coverage 0.98"), 0) << out_.str();
  EXPECT_THAT(out_.str(), HasSubstr("% unknown"));
  EXPECT_EQ(run("--vocab-size 60 --normalization none"), 2);
  EXPECT_THAT(out_.str(), HasSubstr("unknown normalization 'none'"));
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
