// The reader alone; prepare_corpus_test.cc has what becomes of its lines.
#include "tools/corpus/parallel_text.h"

#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "tests/support/temporary_directory.h"
#include "tools/corpus/text_lines.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class ParallelTextTest : public ::testing::Test {
 protected:
  ParallelReader Open(const std::string& source, const std::string& target) {
    SetContents(directory_ / "source", source);
    SetContents(directory_ / "target", target);
    return ParallelReader::Open({.source = directory_ / "source", .target = directory_ / "target"}).value();
  }
  // All pairs; the status is that of the end.
  static absl::Status ReadAll(ParallelReader& reader, std::vector<std::pair<std::string, std::string>>& pairs) {
    ParallelLine line;
    while (true) {
      const absl::StatusOr<bool> more = reader.Next(line);
      if (!more.ok() || !*more) return more.status();
      if (!line.invalid.empty()) return absl::InvalidArgumentError(line.invalid);
      pairs.emplace_back(line.source, line.target);
      EXPECT_EQ(line.number, std::ssize(pairs));
    }
  }

  TemporaryDirectory directory_;
  std::vector<std::pair<std::string, std::string>> pairs_;
};

TEST_F(ParallelTextTest, ByteOrderMarksAndCarriageReturnsAreTakenOffAndCounted) {
  ParallelReader reader = Open(
      "\xEF\xBB\xBF"
      "a\r\nb\r\n",
      "c\nd\r\r\n");
  EXPECT_TRUE(ReadAll(reader, pairs_).ok());
  EXPECT_THAT(pairs_, ElementsAre(Pair("a", "c"), Pair("b", "d\r")));
  EXPECT_TRUE(reader.had_byte_order_mark());
  EXPECT_EQ(reader.carriage_returns(), 3);
}

TEST_F(ParallelTextTest, UnequalLengthsAreAnErrorWithBothCountsWhicheverIsLonger) {
  const struct {
    std::string source, target, counts;
  } cases[] = {{"a\nb\nc\nd", "x\n", "source has 4 lines, target has 1;"},
               {"a\n", "x\ny\nz\n", "target has 3 lines, source has 1;"},
               {"", "x\n", "target has 1 lines, source has 0;"},
               {"a\n\n", "x\n", "source has 2 lines, target has 1;"}};
  for (const auto& [source, target, counts] : cases) {
    ParallelReader reader = Open(source, target);
    pairs_.clear();
    const absl::Status status = ReadAll(reader, pairs_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(absl::StrReplaceAll(status.message(), {{directory_ / "", ""}}), HasSubstr(counts));
  }
}

TEST_F(ParallelTextTest, BlankSidesAndInvalidBytesAreMarkedAndReadingGoesOn) {
  ParallelReader reader = Open("a\n \t\nc\n\xFF\ne\n", "x\ny\n\nz\nbad \xC3\n");
  ParallelLine line;
  std::vector<bool> empty;
  std::vector<std::string> invalid;
  while (reader.Next(line).value()) {
    empty.push_back(line.empty);
    invalid.push_back(line.invalid);
  }
  EXPECT_THAT(empty, ElementsAre(false, true, true, false, false));
  EXPECT_THAT(invalid, ElementsAre("", "", "", AllOf(HasSubstr("source:4: "), HasSubstr("byte 1 of the line on (")),
                                   AllOf(HasSubstr("target:5: "), HasSubstr("byte 5 of the line on ("))));
}

TEST_F(ParallelTextTest, ABlankLineOfColumnsIsBlankOnBothSides) {
  SetContents(directory_ / "columns", "one\teins\n\n \r\n");
  ParallelReader reader =
      *ParallelReader::Open({.source = directory_ / "columns", .target = directory_ / "columns", .one_file = true});
  ParallelLine line;
  EXPECT_TRUE(reader.Next(line).value());
  EXPECT_EQ(line.target, "eins");
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(reader.Next(line).value());
    EXPECT_TRUE(line.empty);
    EXPECT_EQ(line.invalid, "");
  }
  EXPECT_FALSE(reader.Next(line).value());
}

// What a file of both sides has in a direction.
class PairFileTest : public ParallelTextTest {
 protected:
  absl::Status Read(const std::string& contents, const Direction& direction = {"de", "en"}, bool reversed = false) {
    SetContents(directory_ / "pairs", contents);
    ParallelReader reader = *ParallelReader::Open({.source = directory_ / "pairs",
                                                   .target = directory_ / "pairs",
                                                   .one_file = true,
                                                   .reversed = reversed,
                                                   .direction = direction});
    pairs_.clear();
    const absl::Status status = ReadAll(reader, pairs_);
    oddity_ = reader.Oddity();
    return status;
  }
  static std::string Tmx(const std::string& units, const std::string& declaration = "<?xml version=\"1.0\"?>") {
    return absl::StrCat(declaration,
                        "\n<!DOCTYPE tmx SYSTEM \"tmx14.dtd\">\n<tmx version=\"1.4\"><header srclang=\"de\"/><body>",
                        units, "</body></tmx>");
  }
  static std::string Unit(const std::string& german, const std::string& english) {
    return absl::StrCat("<tu><tuv xml:lang=\"de\"><seg>", german, "</seg></tuv><tuv xml:lang=\"en\"><seg>", english,
                        "</seg></tuv></tu>");
  }
  void Refused(const std::string& contents, const std::string& said) {
    const absl::Status status = Read(contents);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(said));
  }

  std::string oddity_;
};

TEST_F(PairFileTest, TmxIsReadByTheStandardsRules) {
  ASSERT_EQ(
      Read(Tmx(Unit("Gr&#252;n &amp;\n  blau", "green &lt;and&gt; <![CDATA[<blue>]]>") +
               Unit("<bpt i=\"1\">&lt;b&gt;</bpt>Fett<ept i=\"1\">&lt;/b&gt;</ept><ph>{0}<sub>Bild</sub></ph>!",
                    "<hi>Bold</hi><it pos=\"begin\">x</it><ut>y</ut>!") +
               "<tu><note>n</note><prop type=\"x\">p</prop><tuv lang=\"EN_us\"><prop>p</prop><seg>color</seg></tuv>"
               "<tuv xml:lang=\"en-GB\"><seg>colour</seg></tuv><tuv xml:lang=\"de-AT\"><seg>Farbe</seg></tuv></tu>" +
               "<tu><tuv xml:lang=\"de\"><seg>allein</seg></tuv><tuv xml:lang=\"fr\"><seg>seul</seg></tuv></tu>")),
      absl::OkStatus());
  EXPECT_THAT(pairs_, ElementsAre(Pair("Grün & blau", "green <and> <blue>"), Pair("Fett!", "Bold!"),
                                  Pair("Farbe", "color"), Pair("allein", "")));
  ASSERT_EQ(Read(Tmx(Unit("ja", "yes")), {"en", "de"}, /*reversed=*/true), absl::OkStatus());
  EXPECT_THAT(pairs_, ElementsAre(Pair("yes", "ja")));
  // A variant without a language is of none; xml:lang goes before lang.
  ASSERT_EQ(Read(Tmx(Unit("a", "b") + "<tu><tuv><seg>x</seg></tuv><tuv xml:lang=\"de\" lang=\"fr\"><seg>ja</seg></tuv>"
                                      "<tuv xml:lang=\"en\"><seg>yes</seg></tuv></tu>")),
            absl::OkStatus());
  EXPECT_THAT(pairs_, ElementsAre(Pair("a", "b"), Pair("ja", "yes")));
  // A language itself goes before its regions.
  ASSERT_EQ(Read(Tmx("<tu><tuv xml:lang=\"de\"><seg>a</seg></tuv><tuv xml:lang=\"en-US\"><seg>b</seg></tuv>"
                     "<tuv xml:lang=\"en\"><seg>c</seg></tuv></tu>")),
            absl::OkStatus());
  EXPECT_THAT(pairs_, ElementsAre(Pair("a", "c")));
}

TEST_F(PairFileTest, TmxOfAnyEncodingAndSize) {
  std::string little = "\xFF\xFE", big = "\xFE\xFF";
  for (const char c : Tmx(Unit("ja", "yes"), "<?xml version=\"1.0\" encoding=\"UTF-16\"?>")) {
    little += {c, '\0'};
    big += {'\0', c};
  }
  for (const std::string& utf16 : {little, big}) {
    ASSERT_EQ(Read(utf16), absl::OkStatus());
    EXPECT_THAT(pairs_, ElementsAre(Pair("ja", "yes")));
  }
  ASSERT_EQ(Read(Tmx(Unit("Stra\xDF"
                          "e",
                          "road"),
                     "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>")),
            absl::OkStatus());
  EXPECT_THAT(pairs_, ElementsAre(Pair("Straße", "road")));
  std::string units;
  for (int i = 0; i < 3000; ++i) units += Unit(absl::StrCat("Satz ", i), absl::StrCat("sentence ", i));
  ASSERT_EQ(Read(Tmx(units)), absl::OkStatus());  // several parts of 64 KiB
  ASSERT_EQ(pairs_.size(), 3000u);
  EXPECT_THAT(pairs_[2999], Pair("Satz 2999", "sentence 2999"));
}

TEST_F(PairFileTest, DamagedTmxIsRefusedWithThePlace) {
  const std::string whole = Tmx(Unit("ja", "yes"));
  Refused(whole.substr(0, whole.size() - 20), "pairs:3:");
  Refused(whole.substr(0, whole.size() - 20), "not well-formed XML");
  Refused("<tmx>\n<tu></x>", "pairs:2:7: not well-formed XML");
  Refused(Tmx("<tu><tuv xml:lang=\"fr\"><seg>oui</seg></tuv><tuv xml:lang=\"it\"><seg>si</seg></tuv></tu>"),
          "no translation unit has text in both \"de\" and \"en\"; it has fr, it");
  Refused(Tmx(Unit("a", "b"), "<?xml version=\"1.0\" encoding=\"koi-99\"?>"), "convert it to UTF-8");
  // Entities that grow: Expat's protection.
  std::string bomb = "<?xml version=\"1.0\"?><!DOCTYPE tmx [<!ENTITY a \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\">";
  for (char c = 'b'; c < 'l'; ++c) {
    absl::StrAppend(&bomb, "<!ENTITY ", std::string(1, c), " \"");
    for (int i = 0; i < 10; ++i) absl::StrAppend(&bomb, "&", std::string(1, static_cast<char>(c - 1)), ";");
    bomb += "\">";
  }
  Refused(bomb + "]><tmx><body>" + Unit("&k;", "b") + "</body></tmx>",
          "not well-formed XML: limit on input amplification");
}

TEST_F(PairFileTest, JsonLinesAreReadByLanguageOrSide) {
  ASSERT_EQ(Read("\xEF\xBB\xBF{\"translation\": {\"de\": \"gr\\u00fcn\", \"en\": \"green\\nleaf\"}}\n"
                 "{\"id\": 3, \"en-US\": \"blue\", \"de\": \"blau\"}\n"
                 "\n{\"src\": \"rot\", \"tgt\": \"red\"}\n{\"de\": null, \"en\": \"alone\"}"),
            absl::OkStatus());
  EXPECT_THAT(pairs_, ElementsAre(Pair("grün", "green leaf"), Pair("blau", "blue"), Pair("", ""), Pair("rot", "red"),
                                  Pair("", "alone")));
  ASSERT_EQ(Read("{\"source\": \"rot\", \"target\": \"red\"}\n", {"en", "de"}, /*reversed=*/true), absl::OkStatus());
  EXPECT_THAT(pairs_, ElementsAre(Pair("red", "rot")));
  ASSERT_EQ(Read("{\"source\": \"rot\", \"target\": \"red\", \"de_url\": \"u\", \"en_url\": \"v\"}\n"
                 "{\"de\": \"blau\", \"en\": \"blue\", \"en_score\": 0.7}\n"),
            absl::OkStatus());
  EXPECT_THAT(pairs_, ElementsAre(Pair("rot", "red"), Pair("blau", "blue")));
  ASSERT_EQ(Read("{\"en\": \"blue\", \"de_DE\": \"blau\", \"source\": \"opus\", \"target\": \"news\"}\n"
                 "{\"en_GB\": \"grey\", \"de_DE\": \"grau\", \"source\": null, \"target\": null}\n"),
            absl::OkStatus());
  EXPECT_THAT(pairs_, ElementsAre(Pair("blau", "blue"), Pair("grau", "grey")));
  ASSERT_EQ(Read("{\"id\": 3, \"source\": \"red\", \"target\": \"merah\"}\n", {"en", "id"}), absl::OkStatus());
  EXPECT_THAT(pairs_, ElementsAre(Pair("red", "merah")));
  Refused("{\"de\": \"a\", \"en\": \"b\"}\n{\"de\": \"a\"\n", "pairs:2: not valid");
  Refused("{\"de\": \"a\", \"en\": 3}\n", "pairs:1: \"en\" is not text");
  Refused("{\"de\": \"a\", \"en\": \"b\"}\n[1]\n", "pairs:2: not a JSON object");
  Refused("{\"german\": \"a\", \"english\": \"b\"}\n",
          "no line has text in both \"de\" and \"en\"; it has english, german");
  Refused("{\"deutsch\": \"a\", \"english\": \"b\"}\n", "it has deutsch, english");
}

TEST_F(PairFileTest, HeadersAndQuotesOfTablesAreNamed) {
  ASSERT_EQ(Read("source\ttarget\nja\tyes\n"), absl::OkStatus());
  EXPECT_THAT(oddity_, HasSubstr("pairs:1 looks like a header"));
  ASSERT_EQ(Read("DE\tEN\nja\tyes\n"), absl::OkStatus());
  EXPECT_THAT(oddity_, HasSubstr("looks like a header"));
  ASSERT_EQ(Read("\"ja\"\t\"yes\"\n\"nein\"\t\"no\"\nso\tso\n"), absl::OkStatus());
  EXPECT_THAT(oddity_, HasSubstr("in 2 of 3 lines both sides are in double quotes"));
  ASSERT_EQ(Read("Quelle\tsource\n\"ja\"\t\"yes\"\nsource\ttarget\n"), absl::OkStatus());
  EXPECT_EQ(oddity_, "");
  Refused("ja, yes\n", "no tab");
  const auto reversed = [&](const char* line) { return std::string(Read(line, {"en", "de"}, true).message()); };
  EXPECT_THAT(reversed("j\xFF\tyes\n"), HasSubstr("byte 2 of column 1"));
  EXPECT_THAT(reversed("ja\ty\xFFs\n"), HasSubstr("byte 2 of column 2"));
}

TEST(RepeatedText, APairOfADirectionIsFoundInItsLaterTexts) {
  const auto text = [](const char* target) {
    return TextPair{.source = "s", .target = "t", .direction = {"en", target}};
  };
  RepeatedText repeated({text("de"), text("fr"), text("de")});
  const ParallelLine line{.source = "a", .target = "b"};
  EXPECT_FALSE(repeated.Add(0, line, 7).pair);
  EXPECT_FALSE(repeated.Add(1, line, 7).pair) << "of another direction";
  EXPECT_TRUE(repeated.Add(2, line, 7).pair);
}

TEST_F(ParallelTextTest, PlainTextIsTheTargetAlone) {
  SetContents(directory_ / "text", "a\n\nb");
  ParallelReader reader = ParallelReader::Open({.target = directory_ / "text"}).value();
  ParallelLine line;
  std::vector<std::string> targets;
  while (reader.Next(line).value()) {
    EXPECT_THAT(line.source, IsEmpty());
    EXPECT_EQ(line.empty, line.target.empty());
    targets.push_back(line.target);
  }
  EXPECT_THAT(targets, ElementsAre("a", "", "b"));
}

TEST_F(ParallelTextTest, APipeIsReadOnce) {
  const std::string pipe = directory_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const bool blank_lines : {false, true}) {
    std::thread writer([&] { std::ofstream(pipe) << "a\n"; });
    auto reader = ParallelReader::Open({.source = "", .target = pipe, .blank_lines = blank_lines});
    ParallelLine line;
    ASSERT_TRUE(reader.ok() && *reader->Next(line)) << reader.status();
    EXPECT_EQ(line.target, "a");
    writer.join();
  }
}

TEST_F(ParallelTextTest, WhatIsNoFileIsRefusedBeforeReading) {
  SetContents(directory_ / "good", "a\n");
  EXPECT_EQ(ParallelReader::Open({.source = directory_ / "none", .target = directory_ / "good"}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ParallelReader::Open({.source = directory_ / "good", .target = directory_.path()}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::istringstream in(text);
  TextLines lines(in, "text");
  std::vector<std::string> all;
  std::string line;
  while (true) {
    const absl::StatusOr<bool> more = lines.Next(line);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) break;
    all.push_back(line);
  }
  EXPECT_EQ(lines.lines(), std::ssize(all));
  return all;
}

TEST(TextLines, TheLastLineNeedNotEnd) {
  EXPECT_THAT(LinesOf("a\nb\n"), ElementsAre("a", "b"));
  EXPECT_THAT(LinesOf("a\nb"), ElementsAre("a", "b"));
  EXPECT_THAT(LinesOf("\n\n"), ElementsAre("", ""));
  EXPECT_THAT(LinesOf(""), IsEmpty());
}

TEST(TextLines, OneCarriageReturnBeforeTheEndIsNoText) {
  EXPECT_THAT(LinesOf("a\r\nb\r\r\nc\rd\r"), ElementsAre("a", "b\r", "c\rd"));
}

// At the very beginning only; behind it the same bytes are a character.
TEST(TextLines, AByteOrderMarkIsNoText) {
  EXPECT_THAT(LinesOf("\xEF\xBB\xBF"
                      "a\n\xEF\xBB\xBF"
                      "b\n"),
              ElementsAre("a",
                          "\xEF\xBB\xBF"
                          "b"));
  EXPECT_THAT(LinesOf("\xEF\xBB\xBF\r\n"), ElementsAre(""));
}

// NEL, form feeds and Unicode's line separator are text: line n of a translation is that of line n.
TEST(TextLines, NothingElseEndsALine) {
  EXPECT_THAT(LinesOf("a\xC2\x85 b\x0C c\xE2\x80\xA8 d\n"), ElementsAre("a\xC2\x85 b\x0C c\xE2\x80\xA8 d"));
}

TEST(TextLines, WhatIsNotUtf8IsNamedByLineAndByteOfTheLineAsItIs) {
  std::istringstream in(
      "\xEF\xBB\xBFgood\nStra\xDF"
      "e\n");
  TextLines lines(in, "talk.de");
  std::string line;
  ASSERT_TRUE(lines.Next(line).value());
  const absl::Status status = lines.Next(line).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("talk.de:2: not UTF-8 from byte 5"));
}

// One line each, as the programs write it.
TEST(TextLines, ACompressedFileAndUtf16AreNamed) {
  const std::pair<std::string, const char*> kinds[] = {
      {std::string("\x1F\x8B\x08\0\0\0\0\0", 8), "talk.de is compressed with gzip"},
      {"BZh91AY&SY\x8B", "bzip2 -dc"},
      {std::string("\xFD\x37zXZ\0", 6), "xz -dc"},
      {"\x28\xB5\x2F\xFD", "zstd -dc"},
      {"PK\x03\x04\x14", "unzip -p"},
      {"PAR1\x15\x04", "talk.de is a Parquet file"},
      {std::string("\xFF\xFE"
                   "a\0",
                   4),
       "talk.de is UTF-16"},
      {std::string("\xFE\xFF\0a", 4), "iconv -f UTF-16 -t UTF-8"},
      {std::string("a\0b\0", 4), "iconv -f UTF-16LE -t UTF-8"},
      {std::string("\0a\0b", 4), "iconv -f UTF-16BE -t UTF-8"}};
  for (const auto& [bytes, said] : kinds) {
    std::istringstream in(bytes + "\nmore\n");
    TextLines lines(in, "talk.de");
    std::string line;
    const absl::Status status = lines.Next(line).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(said));
  }
}

TEST(TextLines, FilesOfOtherProgramsAreNamedWithTheRemedy) {
  const TemporaryDirectory directory;
  const auto said = [&](const std::string& name, const std::string& contents) {
    std::istringstream in(contents);
    TextLines lines(in, directory / name);
    std::string line;
    const absl::Status status = lines.Next(line).status();
    return std::string(status.message());
  };
  EXPECT_THAT(said("a", "one\rtwo\rthree\r"), HasSubstr("lines end in CR alone; convert it with `tr"));
  EXPECT_THAT(said("a", std::string("MMIDIDX\0\0", 9)), HasSubstr("fairseq's binarised text; give the text"));
  SetContents(directory / "train.de-en.de.idx", "MMIDIDX");
  EXPECT_THAT(said("train.de-en.de.bin", "\x05\x00\x09"), HasSubstr("--source-vocab and --target-vocab"));
  EXPECT_THAT(said("a", "TNTIDX"), HasSubstr("fairseq's binarised text"));
  for (const std::string& tmx : {std::string("<?xml version=\"1.0\"?>\n<tmx/>"), std::string(" <tmx>\n<header/>"),
                                 absl::StrCat("<?xml version=\"1.0\"?>", std::string(150, ' '), "<tmx>")}) {
    EXPECT_THAT(said("a", tmx), HasSubstr("`hadal prepare --direction"));
  }
  EXPECT_THAT(said("a", "version https://git-lfs.github.com/spec/v1\noid sha256:1\n"), HasSubstr("`git lfs pull`"));
  // A stray CR is text, and so is a line of markup.
  EXPECT_EQ(said("a", "one\rtwo\nthree\n"), "");
  EXPECT_EQ(said("a.bin", "text\n"), "");
  EXPECT_EQ(UnknownWarning("source", 10, 100), "");
  EXPECT_THAT(UnknownWarning("source", 11, 100), HasSubstr("11% of the source tokens are unknown"));
}

TEST(TextBytes, AreThoseOfAllFilesUnlessOneIsCompressed) {
  const TemporaryDirectory directory;
  SetContents(directory / "a", "12345");
  SetContents(directory / "b", "123");
  EXPECT_EQ(TextBytes(std::vector<std::string>{directory / "a", "", directory / "b"}), 5 + 3);
  EXPECT_EQ(TextBytes(std::vector<std::string>{directory / "a", directory / "b.gz"}), 0);
}

// A folder can be opened, but not read.
TEST(TextLines, AReadThatFailsIsNotTheEnd) {
  std::ifstream in(::testing::TempDir());
  TextLines lines(in, "folder");
  std::string line;
  const absl::Status status = lines.Next(line).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("folder:1: cannot be read"));
}

}  // namespace
}  // namespace hadal
