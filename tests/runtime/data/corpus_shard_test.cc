// One shard's bytes: what the builder makes of samples, and the words in which a shard that lies is refused. That a
// corpus notices, whatever was changed, corpus_test.cc shows.
#include "runtime/data/corpus_shard.h"

#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/bytes.h"
#include "runtime/crc32c.h"
#include "runtime/data/packed_batch.h"
#include "tests/support/shard_bytes.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ShardLimits kLimits = {.source_vocabulary_size = 20, .target_vocabulary_size = 10, .corpora = 2};

// Two samples, the second of which has tokens on all sides.
ShardBuilder TwoSamples() {
  ShardBuilder builder;
  const Sample first = {.source = {4}, .target = {5, 6}};
  const Sample second = {.corpus_id = 1, .weight = 0, .prefix = {19, 3}, .source = {7, 8, 9}, .target = {3, 9}};
  EXPECT_TRUE(builder.Add(first.view()).ok());
  EXPECT_TRUE(builder.Add(second.view()).ok());
  return builder;
}

std::string TwoBytes() {
  ShardBuilder builder = TwoSamples();
  return BytesOf(builder);
}

template <typename T>
std::string Changed(std::string bytes, size_t place, T value) {
  std::memcpy(bytes.data() + place, &value, sizeof(value));
  return bytes;
}
size_t RecordField(size_t sample, size_t field) { return sizeof(ShardHeader) + sample * sizeof(SampleRecord) + field; }

// Opens the bytes as a file whose manifest says what its header says.
absl::StatusOr<std::unique_ptr<CorpusShard>> Open(const std::string& bytes, const ShardLimits& limits) {
  const TemporaryDirectory directory;
  SetContents(directory / "a.shard", bytes);
  ShardHeader header;
  bytes.copy(reinterpret_cast<char*>(&header), sizeof(header));
  const ShardReference reference = {.file = "a.shard",
                                    .bytes = static_cast<int64_t>(bytes.size()),
                                    .samples = header.samples,
                                    .crc32c = Crc32c(bytes.data(), bytes.size())};
  return CorpusShard::Open(directory / "a.shard", reference, limits);
}

// Why the bytes are no shard, without the folder and what to try; "" where they are one.
std::string Refusal(const std::string& bytes) {
  const absl::Status status = Open(bytes, kLimits).status();
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  const std::string message(status.message());
  EXPECT_THAT(message, AllOf(HasSubstr("/a.shard: "), HasSubstr("hadal prepare again")));
  const size_t begin = message.find("a.shard: ");
  return message.substr(begin, message.find("; the file is damaged") - begin);
}

TEST(ShardBuilder, BytesAreCountedAndGivenInPieces) {
  ShardBuilder builder = TwoSamples();
  EXPECT_EQ(builder.samples(), 2);
  EXPECT_EQ(builder.bytes(), 32 + 2 * 32 + 10 * 4);
  EXPECT_EQ(static_cast<int64_t>(BytesOf(builder).size()), 32 + 2 * 32 + 10 * 4);
  builder.Clear();
  EXPECT_EQ(builder.samples(), 0) << "empty for the next shard";
  EXPECT_EQ(builder.bytes(), 32);
}

// Lengths that lie together: their sum is right, and so is every place.
TEST(CorpusShard, ANegativeLengthThatAnotherSideMakesUpForIsRefused) {
  const std::string bytes = TwoBytes();
  struct Side {
    size_t field;
    int32_t tokens;  // of the second sample
  };
  const Side prefix = {offsetof(SampleRecord, prefix_tokens), 2}, source = {offsetof(SampleRecord, source_tokens), 3},
             target = {offsetof(SampleRecord, target_tokens), 2};
  for (const auto& [negative, other] : {std::pair{prefix, source}, {source, target}, {target, prefix}}) {
    std::string lying = Changed<int32_t>(bytes, RecordField(1, negative.field), -1);
    lying = Changed<int32_t>(lying, RecordField(1, other.field), other.tokens + negative.tokens + 1);
    EXPECT_EQ(Refusal(lying), "a.shard: sample 1: it has a side with a negative length") << negative.field;
  }
  // None at all is a length.
  std::string shifted = Changed<int32_t>(bytes, RecordField(1, prefix.field), 0);
  shifted = Changed<int32_t>(shifted, RecordField(1, source.field), 5);
  EXPECT_EQ(Refusal(shifted), "");
}

TEST(CorpusShard, ACorpusThatIsNotThereIsRefused) {
  const std::string bytes = TwoBytes();
  const size_t place = RecordField(1, offsetof(SampleRecord, corpus_id));
  EXPECT_EQ(Refusal(Changed<int32_t>(bytes, place, -1)), "a.shard: sample 1: its corpus id is -1, there are 2 corpora");
  EXPECT_EQ(Refusal(Changed<int32_t>(bytes, place, 2)), "a.shard: sample 1: its corpus id is 2, there are 2 corpora");
  EXPECT_EQ(Refusal(Changed<int32_t>(bytes, place, 0)), "");
}

TEST(CorpusShard, ABlockHasItsLeastTokens) {
  ShardLimits limits = {.target_vocabulary_size = 10, .corpora = 1, .least_target = 1};
  ShardBuilder builder;
  EXPECT_TRUE(builder.Add(Sample{.target = {5}}.view()).ok());
  const std::string bytes = BytesOf(builder);
  EXPECT_TRUE(Open(bytes, limits).ok());
  limits.least_target = 2;
  EXPECT_THAT(std::string(Open(bytes, limits).status().message()), HasSubstr("it has 1 tokens, a block has 2 or more"));
}

TEST(CorpusShard, AWeightIsAFiniteNumberFromZeroOn) {
  const std::string bytes = TwoBytes();
  const size_t place = RecordField(0, offsetof(SampleRecord, weight));
  for (const float bad : {-0.5f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(Refusal(Changed(bytes, place, bad)), HasSubstr("sample 0: its weight is ")) << bad;
  }
  EXPECT_EQ(Refusal(Changed(bytes, place, 1e30f)), "");
}

// The first id outside is named, with its side and what would be inside.
TEST(CorpusShard, TokensOutsideTheirVocabularyAreNamed) {
  const std::string bytes = TwoBytes();
  const size_t tokens = sizeof(ShardHeader) + 2 * sizeof(SampleRecord);
  const auto with_token = [&](size_t i, int32_t id) {
    return Refusal(Changed(bytes, tokens + i * sizeof(int32_t), id));
  };
  // Sample 0: source 0, target 1 and 2; sample 1: prefix 3 and 4, source 5 to 7, target 8 and 9.
  EXPECT_EQ(with_token(4, 20), "a.shard: sample 1: its prefix has the token id 20, the ids of text are 3 to 19");
  EXPECT_EQ(with_token(6, -7), "a.shard: sample 1: its source has the token id -7, the ids of text are 3 to 19");
  EXPECT_EQ(with_token(8, 10), "a.shard: sample 1: its target has the token id 10, the ids of text are 3 to 9");
  EXPECT_EQ(with_token(2, kEosToken), "a.shard: sample 0: its target has the token id 2, the ids of text are 3 to 9");
  EXPECT_EQ(with_token(7, 19), "");
  EXPECT_EQ(with_token(9, kUnknownToken), "");
}

TEST(CorpusShard, PlainTextAloneMarksTokensThatContinueAWord) {
  ShardBuilder builder;
  EXPECT_TRUE(builder.Add(Sample{.target = {5 | kContinuesWord}}.view()).ok());
  const std::string bytes = BytesOf(builder);
  EXPECT_TRUE(Open(bytes, {.target_vocabulary_size = 10, .corpora = 1}).ok());
  EXPECT_FALSE(Open(bytes, {.source_vocabulary_size = 20, .target_vocabulary_size = 10, .corpora = 1}).ok());
}

TEST(CorpusShard, PlacesAndCountsAreHeldToTheHeader) {
  const std::string bytes = TwoBytes();
  EXPECT_EQ(Refusal(Changed<int64_t>(bytes, RecordField(1, offsetof(SampleRecord, first_token)), 4)),
            "a.shard: sample 1: its tokens begin at 4, the samples before it end at 3");
  EXPECT_EQ(Refusal(Changed<int32_t>(bytes, RecordField(1, offsetof(SampleRecord, target_tokens)), 3)),
            "a.shard: sample 1: it has 8 tokens, the shard has only 7 left");
  EXPECT_EQ(Refusal(Changed<int32_t>(bytes, RecordField(1, offsetof(SampleRecord, target_tokens)), 1)),
            "a.shard: its samples have 9 tokens, its header says 10");
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(Refusal(Changed<int32_t>(bytes, RecordField(1, offsetof(SampleRecord, source_tokens)), kMost)),
            "a.shard: sample 1: it has 2147483651 tokens, the shard has only 7 left");
  EXPECT_EQ(Refusal(bytes.substr(0, 31)), "a.shard: it has 31 bytes, a header alone takes 32");
  EXPECT_EQ(Refusal(Changed<uint64_t>(bytes, 0, 5)), "a.shard: it does not begin with a shard's header");
  EXPECT_EQ(Refusal(Changed<uint32_t>(bytes, 8, 3)),
            absl::StrCat("a.shard: it has format version 3, this hadal reads ", ShardHeader::kVersion));
  EXPECT_EQ(Refusal(Changed<int64_t>(bytes, 16, 3)),
            absl::StrCat("a.shard: its header states 3 samples and 10 tokens, which does not match its ", bytes.size(),
                         " bytes"));
  for (const int64_t value : {int64_t{-1}, int64_t{0}, int64_t{1} << 62, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(Refusal(Changed(bytes, 16, value)), HasSubstr(absl::StrCat("states ", value, " samples"))) << value;
    EXPECT_THAT(Refusal(Changed(bytes, 24, value)), HasSubstr(absl::StrCat("and ", value, " tokens"))) << value;
  }
  EXPECT_THAT(Refusal(bytes + "four"), HasSubstr("which does not match its 140 bytes"));
}

constexpr ShardLimits kSpeechLimits = {.target_vocabulary_size = 10, .corpora = 1, .frame_width = 2};

TEST(CorpusShard, FramesComeBackBitForBit) {
  ShardBuilder builder;
  const std::vector<float> frames = {0.1f, -0.0f, 1e-40f, 3e38f};
  EXPECT_TRUE(builder.Add(Sample{.target = {5}, .frames = {7, 8}, .frame_width = 2}.view()).ok());
  EXPECT_TRUE(builder.Add(Sample{.target = {6, 9}, .frames = frames, .frame_width = 2}.view()).ok());
  const auto shard = Open(BytesOf(builder), kSpeechLimits);
  const SampleView second = (*shard)->sample(1);
  EXPECT_EQ(AsBytes(second.frames), AsBytes(frames));
  EXPECT_EQ(second.frame_width, 2);
  EXPECT_TRUE(second.has_source);
  EXPECT_THAT(second.source, ElementsAre());
  EXPECT_THAT(second.target, ElementsAre(6, 9));
}

TEST(CorpusShard, FramesThatCannotBeAreRefused) {
  const auto refusal = [](const Sample& sample) {
    ShardBuilder builder;
    EXPECT_TRUE(builder.Add(sample.view()).ok());
    const absl::Status status = Open(BytesOf(builder), kSpeechLimits).status();
    return std::string(status.message());
  };
  EXPECT_EQ(refusal({.target = {5}, .frames = {1, 2}}), "");
  for (const Sample& sample : {Sample{.target = {5}, .frames = {1, 2, 3}},
                               {.target = {5}},
                               {.prefix = {4}, .target = {5}, .frames = {1, 2}}}) {
    EXPECT_THAT(refusal(sample), HasSubstr("expected one or more whole frames of 2 values and no prefix"));
  }
  EXPECT_THAT(refusal({.target = {5}, .frames = {1, std::numeric_limits<float>::quiet_NaN()}}),
              HasSubstr("sample 0: its frames have a value that is not finite"));
}

}  // namespace
}  // namespace hadal
