// Documents of JSON Lines, plain text and Megatron-LM's token files, as they come from other programs, and what is
// refused by name.
#include "tools/corpus/parallel_text.h"

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <array>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/bytes.h"
#include "runtime/status_macros.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DocumentFileTest : public ::testing::Test {
 protected:
  // All documents of a file, with what is invalid in them.
  absl::StatusOr<std::vector<std::string>> Read(const std::string& name, const std::string& field = "text",
                                                bool blank_lines = true) {
    HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<DocumentFile> file,
                           DocumentFile::Open(directory_ / name, field, blank_lines));
    std::vector<std::string> documents;
    std::string text, invalid;
    while (true) {
      HADAL_ASSIGN_OR_RETURN(const bool more, file->Next(text, invalid));
      if (!more) return documents;
      documents.push_back(text + invalid);
    }
  }
  absl::StatusOr<std::vector<std::string>> ReadText(const std::string& text, const std::string& field = "text") {
    SetContents(directory_ / "text", text);
    return Read("text", field);
  }
  static std::string Message(const absl::StatusOr<std::vector<std::string>>& documents) {
    return std::string(documents.status().message());
  }

  TemporaryDirectory directory_;
};

constexpr char kJson[] =
    "\xEF\xBB\xBF{\"text\": \"a b\\n\\nc\", \"body\": \"d\"}\r\n{\"body\": \"e\", \"text\": \"\"}\n";

TEST_F(DocumentFileTest, ALineOfJsonIsADocument) {
  EXPECT_THAT(*ReadText(kJson), ElementsAre("a b\n\nc", ""));
  EXPECT_THAT(*ReadText(kJson, "body"), ElementsAre("d", "e"));
}

TEST_F(DocumentFileTest, AFieldThatIsMissingIsNamedWithThoseThatAreThere) {
  EXPECT_THAT(ReadText(kJson, "content")->front(),
              AllOf(HasSubstr("text:1: no text in the field \"content\""), HasSubstr("has text in body, text")));
  EXPECT_THAT(*ReadText("{\"text\": \"a\"}\n{\"text\": 3}\n{\"text\"\n[]\n{\"text\": \"b\"}\n"),
              ElementsAre("a", HasSubstr("text:2: no text in the field"), HasSubstr("text:3: not valid"),
                          HasSubstr("text:4: no text in the field"), "b"));
}

TEST_F(DocumentFileTest, BlankLinesSeparateDocumentsOfPlainText) {
  EXPECT_THAT(*ReadText("\n\na\nb\r\n \t\n\nc"), ElementsAre("a\nb", "c"));
  const auto file = DocumentFile::Open(directory_ / "text", "text", /*blank_lines=*/true).value();
  std::string text, invalid;
  ASSERT_TRUE(*file->Next(text, invalid));
  EXPECT_EQ(file->place(), 3) << "its first line";
  EXPECT_THAT(*ReadText("a\n\xFF\n\nb\n"),
              ElementsAre(AllOf(HasSubstr("a\n\xFF"), HasSubstr("text:2: not UTF-8 from byte 1")), "b"));
  EXPECT_EQ(*DocumentFile::Open(directory_ / "text", "text", /*blank_lines=*/false), nullptr) << "lines";
}

TEST_F(DocumentFileTest, CompressedTextIsReadAndDamageIsNoticed) {
  std::string text;
  for (int i = 0; i < 30000; ++i) text += "{\"text\": \"document " + std::to_string(i) + "\"}\n";
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 1));
  SetContents(directory_ / "a.zst", packed);
  const gzFile gzip = gzopen((directory_ / "a.gz").c_str(), "wb");
  gzwrite(gzip, text.data(), static_cast<unsigned>(text.size()));
  gzclose(gzip);
  SetContents(directory_ / "two.zst", packed + packed);  // frames follow one another, as `cat` leaves them
  SetContents(directory_ / "cut.zst", packed.substr(0, packed.size() - 5));
  const std::vector<std::string> documents = *Read("a.gz");
  EXPECT_EQ(documents.size(), 30000u);
  EXPECT_EQ(documents.back(), "document 29999");
  EXPECT_EQ(*Read("a.zst"), documents);
  EXPECT_EQ(Read("two.zst")->size(), 60000u);
  EXPECT_FALSE(Read("cut.zst").ok());
  const gzFile line = gzopen((directory_ / "line.gz").c_str(), "wb");
  gzputs(line, "{\"text\": \"piped\"}\n");
  gzclose(line);
  const std::string bytes = Contents(directory_ / "line.gz");
  std::array<int, 2> ends;
  ASSERT_EQ(pipe(ends.data()), 0);
  ASSERT_EQ(write(ends[1], bytes.data(), bytes.size()), std::ssize(bytes));
  close(ends[1]);
  const auto piped = DocumentFile::Open("/dev/fd/" + std::to_string(ends[0]), "text", /*blank_lines=*/false);
  close(ends[0]);
  ASSERT_TRUE(piped.ok() && *piped != nullptr) << "not decompressed";
  std::string invalid;
  ASSERT_TRUE(*(*piped)->Next(text, invalid));
  EXPECT_EQ(text, "piped");
}

// An index of sequences and the first sequence of each document, as megatron.core.datasets.indexed_dataset writes it.
template <typename Id>
std::string Index(uint8_t code, const std::vector<int32_t>& lengths, const std::vector<int64_t>& documents) {
  std::string index("MMIDIDX\0\0", 9);
  AppendValue(uint64_t{1}, index);
  AppendValue(code, index);
  AppendValue(uint64_t{lengths.size()}, index);
  AppendValue(uint64_t{documents.size()}, index);
  index += AsBytes(lengths);
  int64_t at = 0;
  for (const int32_t length : lengths) {
    AppendValue(at, index);
    at += length * static_cast<int64_t>(sizeof(Id));
  }
  return index + std::string(AsBytes(documents));
}

TEST_F(DocumentFileTest, TokenFilesOfMegatronAreIds) {
  const std::vector<uint16_t> ids = {1, 2, 3, 40000, 5, 6};
  SetContents(directory_ / "m.bin", std::string(AsBytes(ids)));
  SetContents(directory_ / "m.idx", Index<uint16_t>(8, {2, 1, 0, 3}, {0, 1, 3, 4}));
  EXPECT_THAT(*Read("m.bin"), ElementsAre("1 2", "3", "40000 5 6"));
  EXPECT_TRUE((*DocumentFile::Open(directory_ / "m.idx", "text", true))->has_ids());
  SetContents(directory_ / "m.idx", Index<uint16_t>(8, {2, 1, 0, 3}, {1, 3, 4}));  // datatrove's has no leading 0
  EXPECT_THAT(*Read("m.idx"), ElementsAre("1 2", "3", "40000 5 6"));
  const std::vector<int32_t> wide = {7, 70000};
  SetContents(directory_ / "w.bin", std::string(AsBytes(wide)));
  SetContents(directory_ / "w.idx", Index<int32_t>(4, {2}, {0, 1}));
  EXPECT_THAT(*Read("w.bin"), ElementsAre("7 70000"));
}

TEST_F(DocumentFileTest, OtherIndexesAreRefusedByName) {
  SetContents(directory_ / "m.bin", std::string(12, '\0'));
  const auto refusal = [&](const std::string& index) {
    SetContents(directory_ / "m.idx", index);
    return Message(Read("m.bin"));
  };
  const std::string whole = Index<uint16_t>(8, {2, 4}, {0, 2});
  ASSERT_EQ(refusal(whole), "");
  std::string fairseq = whole.substr(0, whole.size() - 16);
  fairseq.erase(26, 8);  // no list of documents
  EXPECT_THAT(refusal(fairseq), HasSubstr("m.idx is fairseq's index"));
  EXPECT_THAT(refusal(whole.substr(0, whole.size() - 1)), HasSubstr("that of no index of 2 sequences"));
  EXPECT_THAT(refusal(Index<uint16_t>(9, {2, 4}, {0, 2})), HasSubstr("type code 9"));
  EXPECT_THAT(refusal(Index<uint16_t>(8, {2, 4}, {0, 1})), HasSubstr("does not end with the number of sequences"));
  EXPECT_THAT(refusal(Index<uint16_t>(8, {2, 5}, {0, 2})), HasSubstr("m.bin has 12 bytes, its index says 14"));
  EXPECT_THAT(refusal(Index<uint16_t>(8, {2, 3}, {0, 2})), HasSubstr("m.bin has 12 bytes, its index says 10"));
  EXPECT_THAT(refusal(Index<int32_t>(8, {2, 4}, {0, 2})), HasSubstr("sequence 2 does not follow"));
  EXPECT_THAT(refusal(Index<uint16_t>(8, {2, 4}, {0, 2, 1, 2})), HasSubstr("its list of documents is not ascending"));
  EXPECT_THAT(refusal("TNTIDX"), HasSubstr("does not begin with MMIDIDX"));
}

}  // namespace
}  // namespace hadal
