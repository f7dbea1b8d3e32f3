// Which lines become samples, which are counted and left out, and which are errors.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "gmock/gmock.h"
#include "runtime/data/vocabulary.h"
#include "tests/tools/corpus/prepare_fixture.h"
#include "tools/corpus/prepare_corpus.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

TEST_F(PrepareTest, BadLinesOfPlainTextAreNamed) {
  options_.monolingual = true;
  options_.train = {{"", Path("train.de")}};
  options_.on_empty = BadLine::kError;
  Write("train.de", "Ein Mann\n\n");
  ExpectError({"train.de:2: the line is empty"});
  Write("train.de", "");
  ExpectError({"the train text (", "train.de) is empty"});
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

TEST_F(PrepareTest, InvalidUtf8IsAnErrorWithItsLineOrACountedSkip) {
  Write("train.de", "Die Katze schläft.\nDer Hund fri\xDFt.\nEin Mann liest.\n");
  ExpectError({"train.de:2: not UTF-8 from byte 13", "--on-invalid skip"});
  options_.on_invalid = BadLine::kSkip;
  options_.training.size = 45;
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(OpenCorpus("train").size(), 2);
  EXPECT_THAT(out_.str(), HasSubstr("skipped 1 of 3 (33.3%): 1 not UTF-8 or broken JSON"));
}

// Nothing of it is text, so that no line can be left out.
TEST_F(PrepareTest, ACompressedFileIsAnErrorAlsoWhereBadLinesAreSkipped) {
  options_.on_invalid = BadLine::kSkip;
  Write("train.de", "BZh91AY&SY \xFF\n\xFF\n\xFF\n");
  ExpectError({"train.de is compressed with bzip2", "bzip2 -dc"});
}

TEST_F(PrepareTest, TextCompressedWithGzipIsReadAndATruncatedFileNoticed) {
  WriteLongText();
  options_.training.size = 200;
  ASSERT_EQ(std::system(("gzip " + Path("train.de")).c_str()), 0);
  options_.train = {{Path("train.en"), Path("train.de.gz")}};
  ASSERT_TRUE(Run().ok()) << out_.str();
  EXPECT_EQ(TargetText(OpenCorpus("train"), 0), GermanLine(0));
  std::filesystem::resize_file(Path("train.de.gz"), std::filesystem::file_size(Path("train.de.gz")) - 20);
  options_.output = Path("other");
  EXPECT_THAT(std::string(Run().message()), HasSubstr("cannot be read; is it whole"));
}

TEST_F(PrepareTest, APipeIsRefusedBecauseTextIsReadSeveralTimes) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  options_.train[0].target = Path("pipe");
  ExpectError({"it is a pipe", "save its output to a file"});
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
  EXPECT_THAT(out_.str(), HasSubstr("skipped 1 of 3 (33.3%): 1 with an empty side"));
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
  EXPECT_THAT(out_.str(),
              HasSubstr(absl::StrCat("skipped 1 of 3 (33.3%): 1 longer than ", options_.max_tokens, " tokens")));
  options_.on_long = BadLine::kError;
  EXPECT_THAT(std::string(Run().message()), HasSubstr(absl::StrCat("the limit is ", options_.max_tokens)));
}

// Blank only after normalisation.
TEST_F(PrepareTest, ALineOfWhichNoTokenIsLeftIsNamedWhereEmptyOnesAreErrors) {
  options_.on_empty = BadLine::kError;
  Write("train.en", "The cat sleeps.\n \xE2\x80\x8B \nA man reads.\n");
  ExpectError({"train.en:2 / ", "train.de:2: a side has no tokens", "--on-empty skip"});
  Write("train.de", "Die Katze schläft.\nDer Hund frisst den Fisch.\n \xE2\x80\x8B \n");
  options_.monolingual = true;
  options_.train = {{"", Path("train.de")}};
  options_.training.size = 40;
  ExpectError({"train.de:3: it has no tokens"});
}

TEST_F(PrepareTest, ASampleIsSpreadEvenlyOverEachText) {
  Write("a", "1\n2\n3\n4\n5\n6\n");
  Write("b", "7\n8\n");
  const Split split = {.name = "train", .pairs = {{Path("a"), Path("a")}, {Path("b"), Path("b")}}};
  const SplitSurvey survey = {.texts = {{.lines = 6}, {.lines = 2}}};
  const SampledText sample = SampleText(split, options_, survey, {3, 4}).value();
  EXPECT_THAT(sample.target, ::testing::ElementsAre("1", "3", "5", "7", "7", "8", "8"));
  EXPECT_EQ(sample.source, sample.target);
}

TEST_F(PrepareTest, NothingLeftIsAnError) {
  Write("train.en", "\n\n");
  Write("train.de", "\n\n");
  ExpectError({"no line is left of the train text", "2 with an empty side"});
  Write("train.en", "");
  Write("train.de", "");
  ExpectError({"text (", "is empty"});
}

// A NUL, spelt special tokens, pieces' own marks, a line separator (which ends no line), an emoji; the last line is
// blank only after normalisation.
TEST_F(PrepareTest, OddTextIsKept) {
  const std::string nul(1, '\0');
  Write("train.en", absl::StrCat("a", nul, "b\n<s> </s> <unk>\n▁▁\u2028@@ \xF0\x9F\x98\x80\n \xE2\x80\x8B \n"));
  Write("train.de", "c\nd\ne\nf\n");
  options_.training.size = 22;
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(OpenCorpus("train").size(), 3);
  // The NUL and the three spelt special tokens are unknown; nothing else is.
  EXPECT_EQ(OpenCorpus("train").manifest().statistics.source_unknown, 4);
  EXPECT_THAT(out_.str(), HasSubstr("skipped 1 of 4 (25%): 1 with an empty side"));
}

// Nine of ten lines may be left out, and are told of.
TEST_F(PrepareTest, WhereNearlyAllWouldBeLeftOutThatIsAnErrorUnlessAllowed) {
  std::string nine_blank = "The cat sleeps.\n";
  for (int i = 0; i < 9; ++i) nine_blank += "\n";
  Write("train.en", nine_blank);
  Write("train.de", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n");
  options_.training.size = 17;
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(out_.str(), HasSubstr("warning: most of the train text"));
  EXPECT_THAT(out_.str(), HasSubstr("skipped 9 of 10 (90%): 9 with an empty side"));

  options_.output = Path("again");
  Write("train.en", nine_blank + "\n");
  Write("train.de", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\n");
  const absl::Status refused = Run();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("skipped 10 of 11 (90.9%): 10 with an empty side"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--max-skipped"));
  EXPECT_FALSE(std::filesystem::exists(Path("again"))) << "known from the text alone: nothing was written";
  options_.most_skipped = 1;
  EXPECT_TRUE(Run().ok());
}

// What is too long is known when it is encoded: no manifest makes a corpus of what was written by then.
TEST_F(PrepareTest, WhereTooMuchIsTooLongThereIsNoCorpus) {
  ASSERT_TRUE(Run().ok());
  const CorpusStatistics all = OpenCorpus("train").manifest().statistics;
  options_.max_tokens = std::max(all.longest_source, all.longest_target) - 1;
  options_.most_skipped = 0;
  std::filesystem::remove_all(Path("out"));
  ExpectError({"more of the train text", "0% that --max-skipped allows",
               absl::StrCat("1 longer than ", options_.max_tokens, " tokens; raise --max-tokens")});
}

}  // namespace

// Lines into ids by several threads: the same bytes, and bounded memory.

namespace {

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

TEST(TextCodec, TakesTheIdsOfTheVocabularyAlone) {
  TextCodec codec = *TextCodec::Open(*Vocabulary::FromTokens({"a", "b"}), CodecInput::kIds);
  EXPECT_THAT(*codec.Encode("5 0", /*alone=*/false), ::testing::ElementsAre(5, 0));
  for (const char* word : {"6", "-1", "a"}) EXPECT_FALSE(codec.Encode(word, /*alone=*/false).ok()) << word;
}

// What waits to be encoded is bounded by lines and by bytes.
TEST_F(PrepareTest, FewLinesWaitToBeEncoded) {
  const Vocabulary vocabulary = *Vocabulary::FromTokens({"a", "b"});
  TextCodec codec = *TextCodec::Open(vocabulary);
  LineEncoder lines(nullptr, vocabulary, codec, 2);
  ParallelLine line{.number = 1, .target = "a b a"};
  for (size_t i = 0; i < LineEncoder::kMostLines; ++i) {
    EXPECT_FALSE(lines.full());
    lines.Add(0, line);
  }
  EXPECT_TRUE(lines.full());
  EXPECT_EQ(lines.Encode()->size(), LineEncoder::kMostLines);
  EXPECT_FALSE(lines.full());
  line.target = std::string(LineEncoder::kMostBytes / 2, 'a');
  lines.Add(0, line);
  EXPECT_FALSE(lines.full());
  lines.Add(0, line);
  EXPECT_TRUE(lines.full());
}

}  // namespace

}  // namespace hadal
