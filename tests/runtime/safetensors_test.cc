#include "runtime/safetensors.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/crc32c.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/recorded_syncs.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using testing::HasSubstr;

const std::vector<SafetensorsTensor>& Tensors() {
  static const std::vector<SafetensorsTensor> tensors = {{"b", SafetensorsType::kF32, {2, 3}},
                                                         {"empty", SafetensorsType::kF32, {0, 7}},
                                                         {"a \"quoted\" name", SafetensorsType::kBF16, {5}},
                                                         {"scalar", SafetensorsType::kI64, {}}};
  return tensors;
}

std::string Data() {
  std::string data;
  for (int i = 0; i < 2 * 3 * 4 + 5 * 2 + 8; ++i) data.push_back(static_cast<char>(i * 37));
  return data;
}

SafetensorsSummary Write(const std::string& path) {
  auto writer = SafetensorsWriter::Create(path, Tensors(), {{"format", "pt"}});
  // In pieces that end inside tensors.
  const std::string data = Data();
  for (size_t at = 0; at < data.size(); at += 5) EXPECT_TRUE(writer->Append(data.substr(at, 5)).ok());
  auto summary = writer->Finish();
  return *summary;
}

// A file with this header and this much data.
std::string File(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, 'd');
}

std::string Reason(const std::string& file) {
  TemporaryDirectory directory;
  SetContents(directory / "file", file);
  const auto reader = SafetensorsReader::Open(directory / "file");
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kDataLoss) << file.substr(0, 200);
  return std::string(reader.status().message());
}

std::string Entry(const std::string& name, const std::string& shape, int64_t begin, int64_t end,
                  const std::string& type = "F32") {
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST(SafetensorsTest, TheFileIsWhatTheFormatSays) {
  TemporaryDirectory directory;
  Write(directory / "file");
  const std::string file = Contents(directory / "file");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ((8 + length) % 8, 0u);
  ASSERT_EQ(file.size(), 8 + length + Data().size());
  EXPECT_EQ(file.substr(8 + length), Data());
  EXPECT_EQ(file[8], '{');
  const auto header = nlohmann::json::parse(file.substr(8, length));
  EXPECT_EQ(header["__metadata__"], nlohmann::json({{"format", "pt"}}));
  EXPECT_EQ(header["b"], nlohmann::json({{"dtype", "F32"}, {"shape", {2, 3}}, {"data_offsets", {0, 24}}}));
  EXPECT_EQ(header["empty"]["data_offsets"], nlohmann::json({24, 24}));
  EXPECT_EQ(header["a \"quoted\" name"],
            nlohmann::json({{"dtype", "BF16"}, {"shape", {5}}, {"data_offsets", {24, 34}}}));
  EXPECT_EQ(header["scalar"]["shape"], nlohmann::json::array());
  EXPECT_EQ(header["scalar"]["data_offsets"], nlohmann::json({34, 42}));
}

TEST(SafetensorsTest, ReadsBackWhatItWrote) {
  TemporaryDirectory directory;
  const SafetensorsSummary summary = Write(directory / "file");
  const auto reader = SafetensorsReader::Open(directory / "file");
  EXPECT_EQ(reader->metadata().at("format"), "pt");
  EXPECT_EQ(reader->header_bytes(), summary.header_bytes);
  EXPECT_EQ(reader->header_crc32c(), summary.header_crc32c);
  std::string data;
  for (const SafetensorsTensor& tensor : Tensors()) {
    const int32_t index = reader->Find(tensor.name);
    ASSERT_GE(index, 0) << tensor.name;
    EXPECT_EQ(reader->tensors()[index], tensor);
    std::string bytes(static_cast<size_t>(tensor.bytes()), '\0');
    ASSERT_TRUE(reader->Read(index, 0, tensor.bytes(), bytes.data()).ok());
    data += bytes;
  }
  EXPECT_EQ(data, Data());
  EXPECT_EQ(reader->Find("missing"), -1);
  char two[2];
  ASSERT_TRUE(reader->Read(reader->Find("b"), 3, 2, two).ok());
  EXPECT_EQ(std::string(two, 2), Data().substr(3, 2));
}

TEST(SafetensorsTest, ChecksumsAreThoseOfTheBytes) {
  TemporaryDirectory directory;
  const SafetensorsSummary summary = Write(directory / "file");
  const std::string file = Contents(directory / "file");
  EXPECT_EQ(summary.bytes, static_cast<int64_t>(file.size()));
  EXPECT_EQ(summary.crc32c, Crc32c(file.data(), file.size()));
  EXPECT_EQ(summary.header_crc32c, Crc32c(file.data(), static_cast<size_t>(summary.header_bytes)));
  const std::string data = Data();
  EXPECT_EQ(summary.tensor_crc32c,
            (std::vector<uint32_t>{Crc32c(data.data(), 24), 0, Crc32c(&data[24], 10), Crc32c(&data[34], 8)}));
}

TEST(SafetensorsTest, TensorsLargerThanTheBufferKeepTheirOrder) {
  TemporaryDirectory directory;
  const int64_t large = (int64_t{5} << 20) / 4;  // 5 MiB, between two small ones
  auto writer = SafetensorsWriter::Create(
      directory / "file",
      {{"s", SafetensorsType::kF32, {3}}, {"l", SafetensorsType::kF32, {large}}, {"t", SafetensorsType::kF32, {1}}},
      {});
  std::string data(static_cast<size_t>(12 + large * 4 + 4), '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 2654435761u >> 24);
  ASSERT_TRUE(writer->Append(data).ok());
  const auto summary = writer->Finish();
  const std::string file = Contents(directory / "file");
  EXPECT_TRUE(file.substr(static_cast<size_t>(summary->header_bytes)) == data);
  EXPECT_EQ(summary->crc32c, Crc32c(file.data(), file.size()));
  EXPECT_EQ(summary->tensor_crc32c[1], Crc32c(&data[12], static_cast<size_t>(large) * 4));
}

TEST(SafetensorsTest, AFinishedFileIsOnTheDeviceOrAnError) {
  TemporaryDirectory directory;
  RecordedSyncs syncs;
  Write(directory / "file");
  EXPECT_THAT(syncs.paths(), testing::ElementsAre(directory / "file"));
  auto writer = SafetensorsWriter::Create(directory / "other", {}, {});
  syncs.FailNext(EIO);
  EXPECT_EQ(writer->Finish().status().code(), absl::StatusCode::kInternal);
}

TEST(SafetensorsTest, DataBeginOnEightBytesWhateverTheHeaderHolds) {
  TemporaryDirectory directory;
  for (int letters = 0; letters < 8; ++letters) {
    const std::string path = directory / std::to_string(letters);
    auto writer = SafetensorsWriter::Create(path, {}, {{"note", std::string(letters, 'x')}});
    EXPECT_EQ(writer->Finish()->header_bytes % 8, 0) << letters;
    const auto reader = SafetensorsReader::Open(path);
    EXPECT_EQ(reader->metadata().at("note").size(), static_cast<size_t>(letters));
    EXPECT_TRUE(reader->tensors().empty());
  }
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  TemporaryDirectory directory;
  Write(directory / "whole");
  const std::string whole = Contents(directory / "whole");
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) Reason(whole.substr(0, bytes));
  EXPECT_THAT(Reason(whole + "x"), HasSubstr("follow the last tensor"));
}

TEST(SafetensorsTest, NoFlippedBitOfTheHeaderIsBelievedOrCrashes) {
  TemporaryDirectory directory;
  const SafetensorsSummary summary = Write(directory / "file");
  for (size_t byte = 0; byte < static_cast<size_t>(summary.header_bytes); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      FlipBit(directory / "file", byte, bit);
      const auto reader = SafetensorsReader::Open(directory / "file");
      if (reader.ok()) {
        // A changed letter in a name is still a valid file; then the checksum tells.
        EXPECT_NE(reader->header_crc32c(), summary.header_crc32c) << "byte " << byte << " bit " << bit;
      }
      FlipBit(directory / "file", byte, bit);
    }
  }
}

TEST(SafetensorsTest, HugeHeaderLengthsAreRefusedBeforeAnythingIsAllocated) {
  for (const uint64_t length : {~uint64_t{0}, uint64_t{1} << 63, uint64_t{1} << 40, uint64_t{17}}) {
    std::string file(8 + 16, ' ');
    std::memcpy(file.data(), &length, 8);
    EXPECT_THAT(Reason(file), HasSubstr("says that its header has " + std::to_string(length)));
  }
  // A sparse file long enough to hold it: the format's own limit still counts.
  TemporaryDirectory directory;
  const uint64_t length = uint64_t{1} << 40;
  SetContents(directory / "file", std::string(reinterpret_cast<const char*>(&length), 8));
  ASSERT_EQ(truncate((directory / "file").c_str(), off_t{1} << 41), 0);
  EXPECT_THAT(std::string(SafetensorsReader::Open(directory / "file").status().message()), HasSubstr("100000000"));
}

TEST(SafetensorsTest, HostileShapesAndOffsetsAreRefused) {
  const std::string two = Entry("a", "[2]", 0, 8) + ",";
  struct Case {
    std::string entries;
    size_t data_bytes;
    const char* reason;
  };
  for (const Case& c : {Case{two + Entry("b", "[2]", 4, 12), 12, "inside another"},
                        {two + Entry("b", "[2]", 0, 8), 8, "inside another"},
                        {two + Entry("b", "[1]", 12, 16), 16, "after a gap"},
                        {Entry("a", "[1]", 4, 8), 8, "after a gap"},
                        {Entry("a", "[3]", 0, 12), 8, "has only 8"},
                        {Entry("a", "[3]", 0, 8), 8, "make 12 bytes"},
                        {Entry("a", "[2]", 8, 0), 8, "make 8 bytes"},
                        {Entry("a", "[4294967296,4294967296]", 0, 0), 0, "overflows"},
                        {Entry("a", "[4611686018427387904]", 0, 0), 0, "overflows"},
                        {Entry("a", "[18446744073709551615]", 0, 8), 8, "dimension"},
                        {Entry("a", "[-2]", 0, 8), 8, "dimension"},
                        {Entry("a", "[2.0]", 0, 8), 8, "dimension"},
                        {Entry("a", "[2]", -8, 0), 8, "data_offsets"},
                        {Entry("a", "[2]", 0, 8, "F31"), 8, "F31"},
                        {Entry("a", "[1]", 0, 4) + "," + Entry("a", "[1]", 4, 8), 8, "twice"},
                        {Entry("a", "[[1]]", 0, 4), 4, "deeper"}}) {
    EXPECT_THAT(Reason(File("{" + c.entries + "}", c.data_bytes)), HasSubstr(c.reason)) << c.entries;
  }
}

TEST(SafetensorsTest, HostileHeadersAreRefused) {
  const std::string entry = "{" + Entry("a", "[1]", 0, 4);
  for (const auto& [header, reason] : {std::pair(std::string(1'000'000, '['), "deeper"),
                                       {"[]", "not a JSON object"},
                                       {"{\"a\":1}", "exactly dtype"},
                                       {entry.substr(0, entry.size() - 1) + ",\"more\":0}}", "exactly dtype"},
                                       {entry.substr(0, entry.size() - 2) + ",4]}}", "not two numbers"},
                                       {"{\"__metadata__\":{\"a\":1}}", "not a text"},
                                       {"{\"__metadata__\":3}", "not an object"},
                                       {"{} x", "not valid"}}) {
    EXPECT_THAT(Reason(File(header, header.starts_with(entry.substr(0, 8)) ? 4 : 0)), HasSubstr(reason));
  }
}

TEST(SafetensorsTest, AFileCutWhileItIsReadIsAnErrorNotASignal) {
  TemporaryDirectory directory;
  const SafetensorsSummary summary = Write(directory / "file");
  const auto reader = SafetensorsReader::Open(directory / "file");
  ASSERT_EQ(truncate((directory / "file").c_str(), summary.header_bytes + 10), 0);
  std::string bytes(24, '\0');
  EXPECT_EQ(reader->Read(0, 0, 24, bytes.data()).code(), absl::StatusCode::kDataLoss);
}

TEST(SafetensorsDeathTest, OtherBytesThanTheTensorsHaveAreOurOwnFault) {
  TemporaryDirectory directory;
  auto writer = SafetensorsWriter::Create(directory / "file", {{"a", SafetensorsType::kI64, {1}}}, {});
  ASSERT_TRUE(writer->Append("1234").ok());
  EXPECT_DEATH(static_cast<void>(writer->Finish()), "current_left_ == 0");
  ASSERT_TRUE(writer->Append("5678").ok());
  EXPECT_DEATH(static_cast<void>(writer->Append("9")), "current_left_ > 0");
  ASSERT_TRUE(writer->Finish().ok());
  const auto reader = SafetensorsReader::Open(directory / "file");
  char bytes[8];
  EXPECT_DEATH(static_cast<void>(reader->Read(0, 1, 8, bytes)), "9 vs. 8");
}

TEST(SafetensorsTest, AFullDiskIsReported) {
  TemporaryDirectory directory;
  const FileSizeLimit limit(1'000'000);
  auto writer = SafetensorsWriter::Create(directory / "file", {{"a", SafetensorsType::kF32, {1'000'000}}}, {});
  absl::Status status = writer->Append(std::string(4'000'000, 'x'));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory / "file"));
}

}  // namespace
}  // namespace hadal
