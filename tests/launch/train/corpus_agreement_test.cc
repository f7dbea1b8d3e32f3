#include "launch/train/corpus_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/data/corpus_writer.h"
#include "runtime/status_macros.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRanks = 4;

// Writes a corpus of several shards; `first` makes it another one of the same size.
void Store(const std::string& directory, int32_t first = 5) {
  std::filesystem::create_directories(directory);
  CorpusWriter writer = *CorpusWriter::Create({.prefix = directory + "/train",
                                               .source_vocabulary = {"vocabulary.model", 100, 17},
                                               .target_vocabulary = {"vocabulary.model", 100, 17},
                                               .corpora = {directory},
                                               .shard_bytes = 400});
  for (int32_t i = 0; i < 60; ++i) {
    const Sample sample{.source = {first, 5 + i, 6}, .target = {7, 8}};
    ASSERT_TRUE(writer.Add(sample.view()).ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
}

// What each rank, two a host, comes to with the corpus of its directory.
std::vector<absl::Status> AgreeOn(const std::vector<std::string>& directories) {
  std::vector<absl::Status> outcome(kRanks);
  InProcessWorld world(kRanks);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    const int rank = communicator.rank();
    const std::string prefix = directories[static_cast<size_t>(rank)] + "/train";
    HADAL_ASSIGN_OR_RETURN(Corpus corpus, Corpus::Open(prefix, {.process = rank % 2, .processes = 2}));
    Collectives collectives(communicator, absl::Seconds(30));
    outcome[static_cast<size_t>(rank)] =
        AgreeOnCorpus("data.train", prefix, absl::StrCat("n", rank / 2), collectives, corpus);
    EXPECT_EQ(corpus.size(), 60);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return outcome;
}

TEST(CorpusAgreement, TheSameFilesOrTrueCopiesOfThem) {
  TemporaryDirectory directory;
  Store(directory / "shared");
  Store(directory / "copy");  // of another name: what its text was called does not matter
  const std::string shared = directory / "shared", copy = directory / "copy";
  EXPECT_THAT(AgreeOn({shared, shared, shared, shared}), Each(absl::OkStatus()));
  EXPECT_THAT(AgreeOn({shared, shared, copy, copy}), Each(absl::OkStatus()));
  EXPECT_THAT(AgreeOn({shared, copy, shared, copy}), Each(absl::OkStatus()));
}

TEST(CorpusAgreement, AnotherCorpusOnAHostIsNamed) {
  TemporaryDirectory directory;
  Store(directory / "one");
  Store(directory / "other", 4);
  const std::string one = directory / "one", other = directory / "other";
  for (const absl::Status& status : AgreeOn({one, one, other, other})) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(IsCommonError(status));
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("data.train: "), HasSubstr("ranks 2, 3 (host n1)"), HasSubstr("rank 0's on n0"),
                      HasSubstr("rank 2 has train.00000.shard ("), HasSubstr("rank 0 has train.00000.shard (")));
  }
}

// The first rank of a host has not read the shards with odd numbers, nor the second the others.
TEST(CorpusAgreement, PrivateCopiesOnOneHostAreReadWhole) {
  TemporaryDirectory directory;
  Store(directory / "one");
  Store(directory / "other");
  const std::string one = directory / "one", other = directory / "other";
  const std::string shard = other + "/train.00000.shard";
  FlipBit(shard, std::filesystem::file_size(shard) - 4);  // of a token, in what the first rank reads
  const std::vector<absl::Status> outcome = AgreeOn({one, other, one, one});
  for (const absl::Status& status : outcome) {
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(shard));
  }
  EXPECT_THAT(std::string(outcome[0].message()), HasSubstr("rank 1: "));
}

TEST(CorpusAgreement, WhatDiffersFirstIsTold) {
  const CorpusCopy shorter = {"n0", "v (1)\na (1)\n"}, longer = {"n1", "v (1)\na (1)\nb (2)\n"};
  EXPECT_TRUE(CompareCopies("data.train", std::vector{shorter, shorter}).ok());
  EXPECT_THAT(std::string(CompareCopies("data.train", std::vector{shorter, longer}).message()),
              HasSubstr("rank 1 has b (2), rank 0 has no more than 2 files"));
}

}  // namespace
}  // namespace hadal
