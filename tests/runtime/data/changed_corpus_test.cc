// A corpus whose files somebody changes while it is mapped: an error that names the file, never a crash, a batch that
// exceeds the model's buffers or an id outside the vocabulary; where it can be known, never the changed text.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "runtime/data/corpus.h"
#include "runtime/data/corpus_shard.h"
#include "runtime/data/sampling_order.h"
#include "tests/support/step_batches.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kVocabulary = 50;
constexpr BatchCapacity kCapacity = {.source_rows = 24, .target_rows = 20};

void ExpectFit(const std::vector<PackedBatch>& batches) {
  for (const PackedBatch& batch : batches) {
    ASSERT_LE(batch.source_rows(), kCapacity.source_rows);
    ASSERT_LE(batch.target_rows(), kCapacity.target_rows);
    for (const auto& tokens : {batch.source, batch.target, batch.target_input}) {
      for (const int32_t token : tokens) ASSERT_TRUE(token >= 0 && token < kVocabulary) << token;
    }
  }
}

class ChangedCorpusTest : public ::testing::Test {
 protected:
  ChangedCorpusTest() {
    CorpusWriter writer = *CorpusWriter::Create({.prefix = directory_ / "train",
                                                 .source_vocabulary = {"source.model", kVocabulary, 17},
                                                 .target_vocabulary = {"target.model", kVocabulary, 18},
                                                 .corpora = {"one"},
                                                 .shard_bytes = int64_t{1} << 20});
    for (int32_t i = 0; i < 40; ++i) {
      const Sample sample{.source = std::vector<int32_t>(static_cast<size_t>(1 + i % 9), 4 + i),
                          .target = std::vector<int32_t>(static_cast<size_t>(1 + i % 7), 4 + i)};
      EXPECT_TRUE(writer.Add(sample.view()).ok());
    }
    EXPECT_TRUE(writer.Finish().ok());
    // Written an hour ago, not within the clock tick of the test's changes.
    written_ = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
    SetTime();
    original_ = Contents(shard_);
  }

  SamplingOrder Open() {
    corpus_.emplace(*Corpus::Open(directory_ / "train"));
    return *SamplingOrder::Create(*corpus_, {.seed = 3, .capacity = kCapacity, .micro_batches_per_step = 2});
  }
  void Overwrite(size_t at, const std::string& bytes) const {
    const int file = open(shard_.c_str(), O_WRONLY);
    ASSERT_EQ(pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(at)), static_cast<ssize_t>(bytes.size()));
    close(file);
  }
  void Restore() const {
    Overwrite(0, original_);
    SetTime();
  }
  void SetTime() const { std::filesystem::last_write_time(shard_, written_); }

  TemporaryDirectory directory_;
  const std::string shard_ = directory_ / "train.00000.shard";
  std::filesystem::file_time_type written_;
  std::string original_;
  std::optional<Corpus> corpus_;
  StepBatches step_;
};

TEST_F(ChangedCorpusTest, AChangeWithinTheVocabularyIsFoundByTheFilesTime) {
  SamplingOrder order = Open();
  ASSERT_TRUE(order.Next(0, step_).ok());
  std::string token(4, '\0');
  token[0] = 9;
  Overwrite(original_.size() - 4, token);
  const absl::Status status = order.Next(1, step_);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(shard_ + ": it was changed while it was in use"));
  std::filesystem::last_write_time(shard_, written_ + std::chrono::milliseconds(1));
  EXPECT_FALSE(order.Next(1, step_).ok()) << "within the same second";
}

// The file is read again, once.
TEST_F(ChangedCorpusTest, AnotherTimeAloneIsNoChange) {
  SamplingOrder order = Open();
  std::filesystem::last_write_time(shard_, written_ + std::chrono::minutes(1));
  EXPECT_TRUE(order.Next(0, step_).ok());
  EXPECT_TRUE(order.Next(1, step_).ok());
  std::string token(4, '\0');
  token[0] = 9;
  Overwrite(original_.size() - 4, token);
  std::filesystem::last_write_time(shard_, written_ + std::chrono::minutes(1));
  EXPECT_TRUE(order.Next(2, step_).ok()) << "a time that is known is not looked into";
  FlipBit(shard_, original_.size() - 4);
  EXPECT_FALSE(order.Next(3, step_).ok());
}

TEST_F(ChangedCorpusTest, AFileThatIsReplacedOrRemovedIsReadToItsEnd) {
  SamplingOrder order = Open();
  const StepBatches before = NextStep(order);
  ASSERT_TRUE(order.Continue(DataPlace()).ok());
  SetContents(directory_ / "new", std::string(original_.size(), 'x'));
  std::filesystem::rename(directory_ / "new", shard_);
  ASSERT_TRUE(order.Next(0, step_).ok());
  EXPECT_EQ(step_.micro_batches[0].source, before.micro_batches[0].source);
  std::filesystem::remove(shard_);
  EXPECT_TRUE(order.Next(1, step_).ok());
}

// An index of tables by corpus, in training and in validation.
TEST_F(ChangedCorpusTest, AnUnknownCorpusIdIsNoIndex) {
  corpus_.emplace(*Corpus::Open(directory_ / "train"));
  Overwrite(sizeof(ShardHeader) + offsetof(SampleRecord, corpus_id), std::string(4, '\x7f'));
  SetTime();
  EXPECT_EQ(
      SamplingOrder::Create(*corpus_, {.seed = 3, .capacity = kCapacity, .micro_batches_per_step = 2}).status().code(),
      absl::StatusCode::kDataLoss);
  EXPECT_EQ(MakeValidationBatches(*corpus_, kCapacity, 0).status().code(), absl::StatusCode::kDataLoss);
}

// With the time set back, as if it could not be known: what is returned fits the model all the same.
TEST_F(ChangedCorpusTest, WhateverIsWrittenBatchesFitTheModel) {
  std::mt19937 random(1);
  const auto below = [&](size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); };
  int refused = 0, unnamed = 0, refused_validations = 0;
  for (int round = 0; round < 400; ++round) {
    Restore();
    SamplingOrder order = Open();
    ASSERT_TRUE(order.Next(0, step_).ok());
    size_t length = 1 + below(64), at = below(original_.size() - length);
    const int kind = static_cast<int>(below(3));
    if (kind == 2) {  // the number of source tokens of a sample: possible, but more than a micro-batch holds
      length = 1;
      at = sizeof(ShardHeader) + below(40) * sizeof(SampleRecord) + offsetof(SampleRecord, source_tokens);
    }
    std::string garbage(length, '\0');
    for (char& byte : garbage) byte = static_cast<char>(kind == 0 ? 0xff : kind == 1 ? below(256) : below(60));
    Overwrite(at, garbage);
    SetTime();
    for (int64_t index = 1; index < 12; ++index) {  // also of epochs that begin after the change
      const absl::Status status = order.Next(index, step_);
      if (!status.ok()) {
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
        unnamed += status.message().find(shard_) == std::string::npos ? 1 : 0;
        ++refused;
        break;
      }
      ExpectFit(step_.micro_batches);
    }
    const absl::StatusOr<ValidationBatches> validation = MakeValidationBatches(*corpus_, kCapacity, 0);
    if (validation.ok()) {
      ExpectFit(validation->batches);
    } else {
      EXPECT_EQ(validation.status().code(), absl::StatusCode::kDataLoss) << validation.status();
      ++refused_validations;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(refused_validations, 100);
  EXPECT_EQ(unnamed, 0);
}

}  // namespace
}  // namespace hadal
