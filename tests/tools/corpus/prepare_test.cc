#include "tools/corpus/prepare.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/data/corpus_vocabulary.h"
#include "runtime/locked_file.h"
#include "tests/support/temporary_directory.h"
#include "tools/corpus/prepare_encoding.h"
#include "tools/synthetic/synthetic_corpus.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PrepareTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("train.en", kEnglish);
    Write("train.de", kGerman);
    options_.train = {{Path("train.en"), Path("train.de")}};
    options_.output = Path("out");
    options_.training.size = 60;
  }
  std::string Path(const std::string& name) const { return directory_ / name; }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary | std::ios::trunc) << text;
  }
  std::string Read(const std::string& name) const {
    std::ifstream in(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // More text than the three sentences, for vocabularies that need it.
  void WriteSyntheticText() const {
    std::string english, german;
    for (uint64_t i = 0; i < 100; ++i) {
      const SyntheticPair pair = MakeSyntheticPair(1, i);
      english += pair.english + "\n";
      german += pair.german + "\n";
    }
    Write("train.en", english);
    Write("train.de", german);
  }
  absl::Status Run() {
    out_.str("");
    return RunPrepare(options_, out_);
  }
  // The run must fail with a message that holds each of `parts`.
  void ExpectError(const std::vector<std::string>& parts) {
    const absl::Status status = Run();
    ASSERT_FALSE(status.ok());
    for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    EXPECT_FALSE(std::filesystem::exists(Path("out/train.json")));
  }
  Corpus OpenCorpus(const std::string& split) const { return *Corpus::Open(Path("out/" + split)); }
  std::string SourceText(const Corpus& corpus, int64_t i) const {
    return LoadVocabularies(corpus)->source.Decode(corpus.sample(i).source);
  }
  std::string TargetText(const Corpus& corpus, int64_t i) const {
    return LoadVocabularies(corpus)->target.Decode(corpus.sample(i).target);
  }

  static constexpr char kEnglish[] = "The cat sleeps.\nThe dog eats the fish.\nA man reads.\n";
  static constexpr char kGerman[] = "Die Katze schläft.\nDer Hund frisst den Fisch.\nEin Mann liest.\n";

  TemporaryDirectory directory_;
  PrepareOptions options_;
  std::ostringstream out_;
};

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
  const absl::Status status = Run();
  ASSERT_TRUE(status.ok()) << status;
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
                           "wrote train: 6 lines; ", "skipped 1: 1 empty"}) {
    EXPECT_THAT(out_.str(), HasSubstr(said));
  }
  options_.separate = true;
  EXPECT_THAT(std::string(Run().message()), HasSubstr("one vocabulary"));
}

TEST_F(PrepareTest, BadLinesOfPlainTextAreNamed) {
  options_.monolingual = true;
  options_.train = {{"", Path("train.de")}};
  options_.on_empty = BadLine::kError;
  Write("train.de", "Ein Mann\n\n");
  ExpectError({"train.de:2: the line is empty"});
  Write("train.de", "");
  ExpectError({"nothing is left of the train text", "train.de"});
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

TEST_F(PrepareTest, OneProcessAtATimeWritesIntoAFolder) {
  ASSERT_TRUE(MakeDirectories(options_.output).ok());
  {
    const absl::StatusOr<FileDescriptor> other = OpenLocked(Path("out/.prepare.lock"));
    ASSERT_TRUE(other.ok()) << other.status();
    ExpectError({"another hadal prepare is writing into", Path("out"), "choose another --out"});
    EXPECT_EQ(ListDirectory(Path("out"))->size(), 1) << "nothing was written";
  }
  // The other is gone and has left its file, as a killed one does.
  const absl::Status status = Run();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(OpenCorpus("train").size(), 3);
  EXPECT_FALSE(std::filesystem::exists(Path("out/.prepare.lock")));
}

TEST_F(PrepareTest, SeparateUnigramVocabularies) {
  WriteSyntheticText();
  options_.separate = true;
  options_.training.algorithm = PieceAlgorithm::kUnigram;
  options_.training.size = 90;
  const absl::Status status = Run();
  ASSERT_TRUE(status.ok()) << status;
  const Corpus train = OpenCorpus("train");
  EXPECT_EQ(train.manifest().source_vocabulary.file, "source.model");
  EXPECT_EQ(train.manifest().target_vocabulary.file, "target.model");
  EXPECT_EQ(SourceText(train, 0), MakeSyntheticPair(1, 0).english);
  EXPECT_EQ(TargetText(train, 0), MakeSyntheticPair(1, 0).german);
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

TEST_F(PrepareTest, AnExistingModelIsUsed) {
  ASSERT_TRUE(Run().ok());
  options_.source_vocabulary = options_.target_vocabulary = Path("out/vocabulary.model");
  options_.output = Path("again");
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), Not(HasSubstr("training")));
  EXPECT_EQ(Read("out/train.00000.shard"), Read("again/train.00000.shard"));
}

TEST_F(PrepareTest, DictionariesTakeTokenisedText) {
  Write("dict.en.txt", "the 3\ncat 2\nsleeps 1\n. 1\n");
  Write("dict.de.txt", "die 3\nkatze 2\n. 1\n");
  Write("train.en", "the cat sleeps .\n");
  Write("train.de", "die katze schläft .\n");
  options_.source_vocabulary = Path("dict.en.txt");
  options_.target_vocabulary = Path("dict.de.txt");
  ASSERT_TRUE(Run().ok());
  const Corpus train = OpenCorpus("train");
  EXPECT_THAT(train.sample(0).source, ::testing::ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(train.sample(0).target, ::testing::ElementsAre(4, 5, kUnknownToken, 6));
  EXPECT_EQ(train.manifest().source_vocabulary.file, "source.txt");
  EXPECT_THAT(out_.str(), HasSubstr("none unknown), target 4 (longest 4, 25% unknown)"));

  options_.output = Path("again");
  options_.target_vocabulary.clear();
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(OpenCorpus("train").sample(0).target, ::testing::ElementsAre(4, 5, kUnknownToken, 6)) << "as it was";
  const Corpus one_side = *Corpus::Open(Path("again/train"));
  EXPECT_EQ(one_side.manifest().target_vocabulary.file, "vocabulary.txt") << "one that is given serves both sides";
  EXPECT_THAT(one_side.sample(0).source, ::testing::ElementsAre(4, 5, 6, 7));
  options_.overwrite = true;
  std::swap(options_.source_vocabulary, options_.target_vocabulary);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Read("again/vocabulary.txt"), Read("dict.en.txt")) << "either side's";
}

TEST_F(PrepareTest, ByteOrderMarkAndCrLfAreNoText) {
  Write("train.en", "\xEF\xBB\xBFThe cat sleeps.\r\nThe dog eats the fish.\r\nA man reads.");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(SourceText(OpenCorpus("train"), 0), "The cat sleeps.");
  EXPECT_EQ(SourceText(OpenCorpus("train"), 2), "A man reads.");
  EXPECT_THAT(out_.str(), HasSubstr("byte order marks removed"));
  EXPECT_THAT(out_.str(), HasSubstr("CRLF line ends removed"));
  EXPECT_EQ(OpenCorpus("train").manifest().statistics.source_unknown, 0);
}

TEST_F(PrepareTest, UnequalLineCountsNameBoth) {
  Write("train.de", "Die Katze schläft.\n");
  ExpectError({"train.en has 3 lines", "train.de has 1;"});
  Write("train.de", absl::StrCat(kGerman, "noch\neine\n"));
  ExpectError({"train.de has 5 lines", "train.en has 3;"});
}

TEST_F(PrepareTest, InvalidUtf8IsAnErrorWithItsLineOrACountedSkip) {
  Write("train.de", "Die Katze schläft.\nDer Hund fri\xDFt.\nEin Mann liest.\n");
  ExpectError({"train.de:2: not UTF-8 from byte 13", "--on-invalid skip"});
  options_.on_invalid = BadLine::kSkip;
  options_.training.size = 45;
  const absl::Status status = Run();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(OpenCorpus("train").size(), 2);
  EXPECT_THAT(out_.str(), HasSubstr("skipped 1: 1 not UTF-8"));
}

TEST_F(PrepareTest, ABadLineInTheLastFileIsFoundBeforeAnythingIsWritten) {
  Write("test.en", "fine\nb\xFF\n");
  Write("test.de", "gut\nb\n");
  options_.test = {{Path("test.en"), Path("test.de")}};
  ExpectError({"test.en:2"});
  EXPECT_FALSE(std::filesystem::exists(Path("out")));
}

TEST_F(PrepareTest, EmptySidesAreACountedSkipOrAnError) {
  Write("train.en", "The cat sleeps.\n \t\nA man reads.\n");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(OpenCorpus("train").size(), 2);
  EXPECT_EQ(TargetText(OpenCorpus("train"), 1), "Ein Mann liest.");  // the pairs stay together
  EXPECT_THAT(out_.str(), HasSubstr("skipped 1: 1 with an empty side"));
  options_.on_empty = BadLine::kError;
  options_.output = Path("again");
  EXPECT_THAT(std::string(Run().message()), HasSubstr("train.en:2"));
}

TEST_F(PrepareTest, OverLongSidesAreACountedSkipOrAnError) {
  ASSERT_TRUE(Run().ok());
  const CorpusStatistics all = OpenCorpus("train").manifest().statistics;
  options_.max_tokens = std::max(all.longest_source, all.longest_target);
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(OpenCorpus("train").size(), 3) << "exactly as long as allowed";
  --options_.max_tokens;
  ASSERT_TRUE(Run().ok());
  const Corpus train = OpenCorpus("train");
  EXPECT_EQ(train.size(), 2);
  EXPECT_LE(train.manifest().statistics.longest_source, options_.max_tokens);
  EXPECT_LE(train.manifest().statistics.longest_target, options_.max_tokens);
  EXPECT_THAT(out_.str(), HasSubstr(absl::StrCat("skipped 1: 1 longer than ", options_.max_tokens, " tokens")));
  options_.on_long = BadLine::kError;
  EXPECT_THAT(std::string(Run().message()), HasSubstr(absl::StrCat("the limit is ", options_.max_tokens)));
}

TEST_F(PrepareTest, OptionsThatLeaveNothingAreRefused) {
  options_.max_tokens = 0;
  ExpectError({"--max-tokens 0"});
  EXPECT_FALSE(std::filesystem::exists(Path("out")));
  options_.max_tokens = 1;
  ExpectError({"nothing is left of the train text", "of 3 lines", "3 are too long"});
  options_.max_tokens = 100;
  ASSERT_TRUE(Run().ok()) << "what failed is not in the way";
  options_.output.clear();
  EXPECT_THAT(std::string(Run().message()), HasSubstr("--out"));
}

// Blank only after normalisation.
TEST_F(PrepareTest, ALineOfWhichNoTokenIsLeftIsNamedWhereEmptyOnesAreErrors) {
  options_.on_empty = BadLine::kError;
  Write("train.en", "The cat sleeps.\n \xC2\xA0 \nA man reads.\n");
  ExpectError({"train.en:2 / ", "train.de:2: nothing of a side is left", "--on-empty skip"});
  Write("train.de", "Die Katze schläft.\nDer Hund frisst den Fisch.\n \xC2\xA0 \n");
  options_.monolingual = true;
  options_.train = {{"", Path("train.de")}};
  options_.training.size = 40;
  ExpectError({"train.de:3: nothing of it is left"});
}

TEST_F(PrepareTest, NothingLeftIsAnError) {
  Write("train.en", "\n\n");
  Write("train.de", "\n\n");
  ExpectError({"nothing is left of the train text", "2 have an empty side"});
  Write("train.en", "");
  Write("train.de", "");
  ExpectError({"nothing is left", "of 0 lines"});
  Write("train.en", kEnglish);
  Write("train.de", kGerman);
  options_.max_tokens = 1;
  ExpectError({"nothing is left", "3 are too long"});
}

// Every fourth pair of 100: with every third there would be more than 30.
TEST_F(PrepareTest, TheVocabularyIsTrainedOnAtMostSoManyPairsOfTheTrainingText) {
  WriteSyntheticText();
  Write("valid.en", kEnglish);
  Write("valid.de", kGerman);
  options_.valid = {{Path("valid.en"), Path("valid.de")}};
  options_.training.size = 90;
  options_.vocabulary_pairs = 30;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("on 25 pairs"));
  EXPECT_EQ(OpenCorpus("train").size(), 100) << "all of it is translated into ids";
  options_.overwrite = true;
  options_.vocabulary_pairs = 50;
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(out_.str(), HasSubstr("on 50 pairs"));
}

// A NUL, spelt special tokens, pieces' own marks, an emoji; the last line is blank only after normalisation.
TEST_F(PrepareTest, OddTextIsKept) {
  const std::string nul(1, '\0');
  Write("train.en", absl::StrCat("a", nul, "b\n<s> </s> <unk>\n▁▁ @@ \xF0\x9F\x98\x80\n \xC2\xA0 \n"));
  Write("train.de", "c\nd\ne\nf\n");
  options_.training.size = 22;
  const absl::Status status = Run();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(OpenCorpus("train").size(), 3);
  // The NUL and the three spelt special tokens are unknown; nothing else is.
  EXPECT_EQ(OpenCorpus("train").manifest().statistics.source_unknown, 4);
  EXPECT_THAT(out_.str(), HasSubstr("skipped 1: 1 with an empty side"));
}

TEST_F(PrepareTest, MissingFilesAndFoldersAreNamed) {
  options_.train[0].target = Path("none.de");
  ExpectError({"none.de"});
  options_.train[0].target = directory_.path();
  ExpectError({directory_.path()});
  options_.train.clear();
  ExpectError({"--train"});
}

TEST_F(PrepareTest, AnOutputInUseIsKeptUnlessToldOtherwise) {
  ASSERT_TRUE(Run().ok());
  const std::string before = Read("out/train.json");
  Write("train.en", "The cat reads.\nThe dog eats the fish.\nA man sleeps.\n");
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Read("out/train.json"), before);
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(SourceText(OpenCorpus("train"), 0), "The cat reads.");
}

TEST_F(PrepareTest, OverwritingLeavesNoSplitOfBefore) {
  options_.valid = options_.test = options_.train;
  ASSERT_TRUE(Run().ok());
  options_.valid.clear();
  options_.test.clear();
  std::filesystem::remove(Path("out/train.json"));
  EXPECT_THAT(std::string(Run().message()), HasSubstr("valid.json is there already"));
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  for (const char* split : {"valid", "test"}) {
    EXPECT_FALSE(std::filesystem::exists(Path(absl::StrCat("out/", split, ".json")))) << split;
  }
}

TEST_F(PrepareTest, ATooLargeVocabularyNamesTheLargest) {
  options_.training.size = 5000;
  ExpectError({"at most", "5000"});
}

TEST_F(PrepareTest, AVocabularyThatCannotBeSavedIsAnError) {
  std::filesystem::create_directories(Path("out/vocabulary.model/in the way"));
  ExpectError({"vocabulary.model"});
}

TEST_F(PrepareTest, AnExchangedVocabularyIsNoticed) {
  ASSERT_TRUE(Run().ok());
  const Corpus train = OpenCorpus("train");
  Write("out/vocabulary.model", "the 3\ncat 2\n");
  const absl::Status status = LoadVocabularies(train).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not the vocabulary the corpus was made with"));
}

TEST_F(PrepareTest, TheCommandLineSetsTheOptions) {
  WriteSyntheticText();
  CLI::App app;
  int exit_code = -1;
  AddPrepareCommand(app, exit_code);
  const std::string arguments =
      absl::StrCat("prepare --train ", Path("train.en"), " ", Path("train.de"), " --train ", Path("train.en"), " ",
                   Path("train.de"), " --out ", Path("out"), " --vocab-size 90 --vocab-type unigram --separate");
  ::testing::internal::CaptureStdout();
  app.parse(arguments);
  const std::string printed = ::testing::internal::GetCapturedStdout();
  ASSERT_EQ(exit_code, 0);
  EXPECT_THAT(printed, HasSubstr("two unigram vocabularies of 90"));
  EXPECT_EQ(OpenCorpus("train").size(), 200);

  CLI::App again;
  AddPrepareCommand(again, exit_code);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  again.parse(arguments);
  ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("hadal prepare: "));
  EXPECT_EQ(exit_code, 1);
}

TEST_F(PrepareTest, TheCommandLinePairsFilesUnlessTheyArePlainText) {
  WriteSyntheticText();
  const auto run = [&](const std::string& arguments) {
    CLI::App app;
    int exit_code = -1;
    AddPrepareCommand(app, exit_code);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    app.parse(absl::StrCat("prepare --out ", Path("out"), " --vocab-size 90 ", arguments));
    out_.str(::testing::internal::GetCapturedStderr() + ::testing::internal::GetCapturedStdout());
    return exit_code;
  };
  EXPECT_EQ(run(absl::StrCat("--train ", Path("train.en"))), 2);
  EXPECT_THAT(out_.str(), HasSubstr("--monolingual"));
  ASSERT_EQ(run(absl::StrCat("--train ", Path("train.en"), " --valid ", Path("train.de"), " --monolingual")), 0);
  EXPECT_EQ(OpenCorpus("train").size(), 100);
  EXPECT_TRUE(OpenCorpus("valid").manifest().monolingual());
}

TEST_F(PrepareTest, EachOptionOfTheCommandLineSetsItsOwn) {
  const auto run = [&](const std::string& arguments) {
    CLI::App app;
    int exit_code = -1;
    AddPrepareCommand(app, exit_code);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const std::string pair = absl::StrCat(Path("train.en"), " ", Path("train.de"));
    app.parse(absl::StrCat("prepare --overwrite --out ", Path("out"), " --train ", pair, " ", arguments));
    out_.str(::testing::internal::GetCapturedStderr() + ::testing::internal::GetCapturedStdout());
    return exit_code;
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
  EXPECT_EQ(run(short_ones + "--on-long error"), 2);
  EXPECT_THAT(out_.str(), HasSubstr("the limit is 2"));

  Write("en.txt", "The 3\ncat 2\n");
  Write("de.txt", "Die 3\nKatze 2\n");
  const std::string both = absl::StrCat("--source-vocab ", Path("en.txt"), " --target-vocab ", Path("de.txt"));
  EXPECT_EQ(run(both), 0) << out_.str();
  EXPECT_EQ(Read("out/source.txt"), Read("en.txt"));
  EXPECT_EQ(Read("out/target.txt"), Read("de.txt"));
  const std::string more = absl::StrCat(" --test ", Path("train.en"), " ", Path("train.de"));
  EXPECT_EQ(run(absl::StrCat("--vocab ", Path("de.txt"), more)), 0) << out_.str();
  EXPECT_EQ(Read("out/vocabulary.txt"), Read("de.txt"));
  EXPECT_EQ(OpenCorpus("test").size(), 4);
  EXPECT_EQ(run("--vocab-size 60 --vocab-pairs 2"), 0) << out_.str();
  EXPECT_THAT(out_.str(), HasSubstr("on 2 pairs"));
}

// Real text: what SentencePiece's normalisation would change stays as it was.
TEST_F(PrepareTest, RealTextRoundTrips) {
  const std::string text = HADAL_REAL_TEXT "/sentences";
  options_.train = {{text + ".en", text + ".de"}};
  options_.training = {.size = 800, .normalization = "identity"};
  const absl::Status status = Run();
  ASSERT_TRUE(status.ok()) << status;
  std::ifstream english(text + ".en"), german(text + ".de");
  const Corpus corpus = OpenCorpus("train");
  const CorpusVocabularies vocabularies = *LoadVocabularies(corpus);
  std::string source, target;
  int64_t i = 0;
  for (; std::getline(english, source) && std::getline(german, target); ++i) {
    EXPECT_EQ(vocabularies.source.Decode(corpus.sample(i).source), source);
    EXPECT_EQ(vocabularies.target.Decode(corpus.sample(i).target), target);
  }
  EXPECT_EQ(i, 450);
  EXPECT_EQ(i, corpus.size());
  EXPECT_EQ(corpus.manifest().statistics.source_unknown, 0);
}

// More lines than are encoded together, and a last part.
TEST_F(PrepareTest, ThreadsChangeNoByte) {
  std::string english, german;
  for (int64_t i = 0; i < 2 * static_cast<int64_t>(LineEncoder::kMostLines) + 100; ++i) {
    english += absl::StrCat("The cat ", i, "\n");
    german += absl::StrCat("Die Katze ", i, i % 1000 == 0 ? std::string(3000, '7') : "", "\n");
  }
  Write("train.en", english);
  Write("train.de", german);
  options_.max_tokens = 100;  // some are skipped
  options_.threads = 1;
  ASSERT_TRUE(Run().ok()) << Run();
  const std::string shard = Read("out/train.00000.shard"), manifest = Read("out/train.json");
  EXPECT_EQ(OpenCorpus("train").size(), 2 * static_cast<int64_t>(LineEncoder::kMostLines) + 100 - 17);
  options_.threads = 3;
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Read("out/train.00000.shard"), shard);
  EXPECT_EQ(Read("out/train.json"), manifest);
  EXPECT_EQ(SourceText(OpenCorpus("train"), 0), "The cat 1");
}

// What waits to be encoded is bounded by lines and by bytes.
TEST_F(PrepareTest, FewLinesWaitToBeEncoded) {
  const Vocabulary vocabulary = *Vocabulary::FromTokens({"a", "b"});
  LineEncoder lines(nullptr, vocabulary, 2);
  ParallelLine line{.number = 1, .target = "a b a"};
  for (size_t i = 0; i < LineEncoder::kMostLines; ++i) {
    EXPECT_FALSE(lines.full());
    lines.Add(0, line);
  }
  EXPECT_TRUE(lines.full());
  EXPECT_EQ(lines.Encode().size(), LineEncoder::kMostLines);
  EXPECT_FALSE(lines.full());
  line.target = std::string(LineEncoder::kMostBytes / 2, 'a');
  lines.Add(0, line);
  EXPECT_FALSE(lines.full());
  lines.Add(0, line);
  EXPECT_TRUE(lines.full());
}

}  // namespace
}  // namespace hadal
