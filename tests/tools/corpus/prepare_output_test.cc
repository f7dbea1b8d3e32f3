// The output folder: one process at a time, nothing replaced unasked, nothing of before left behind.
#include "tools/corpus/prepare_corpus.h"

#include <filesystem>
#include <iterator>

#include "gmock/gmock.h"
#include "runtime/data/corpus.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/files.h"
#include "runtime/locked_file.h"
#include "tests/tools/corpus/prepare_fixture.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(PrepareTest, OneProcessAtATimeWritesIntoAFolder) {
  ASSERT_TRUE(MakeDirectories(options_.output).ok());
  {
    const FileDescriptor other = OpenLocked(Path("out/.hadal.lock")).value();
    ExpectError({"another process is writing ", Path("out"), "choose another --out"});
    EXPECT_EQ(ListDirectory(Path("out"))->size(), 1) << "nothing was written";
  }
  // The other is gone and has left its file, as a killed one does.
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(OpenCorpus("train").size(), 3);
  EXPECT_FALSE(std::filesystem::exists(Path("out/.hadal.lock")));
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

TEST_F(PrepareTest, AnErrorLeavesTheCorpusOfBefore) {
  ASSERT_TRUE(Run().ok());
  const std::string manifest = Read("out/train.json"), vocabulary = Read("out/vocabulary.model");
  const std::vector<std::string> names = *ListDirectory(Path("out"));
  options_.overwrite = true;
  options_.max_tokens = 1;
  EXPECT_FALSE(Run().ok()) << "found out while shards are written";
  EXPECT_EQ(*ListDirectory(Path("out")), names);
  options_.max_tokens = 256;
  options_.training.size = 5000;
  EXPECT_THAT(std::string(Run().message()), AllOf(HasSubstr("at most"), HasSubstr("ids, 5000 were requested")));
  EXPECT_EQ(Read("out/train.json"), manifest);
  EXPECT_EQ(Read("out/vocabulary.model"), vocabulary);
  EXPECT_EQ(OpenCorpus("train").size(), 3);
  EXPECT_EQ(*ListDirectory(Path("out")), names);
}

TEST_F(PrepareTest, AVocabularyThatIsThereMayBeTheGivenOne) {
  ASSERT_TRUE(Run().ok());
  options_.source_vocabulary = options_.target_vocabulary = Path("out/vocabulary.model");
  for (const char* name : {"train.json", "train.00000.shard", "cleaning.json"}) {
    std::filesystem::remove(Path(absl::StrCat("out/", name)));
  }
  EXPECT_EQ(Run(), absl::OkStatus());
  options_.overwrite = true;
  EXPECT_EQ(Run(), absl::OkStatus());
  options_.train[0].direction = {"en", "de"};
  options_.tags = LanguageTags::kM2m100;
  EXPECT_THAT(std::string(Run().message()), HasSubstr("vocabulary.model, which is an input"))
      << "with tags it is another one";
}

TEST_F(PrepareTest, OverwritingLeavesNoSplitOfBefore) {
  options_.valid = options_.test = options_.train;
  ASSERT_TRUE(Run().ok());
  options_.valid.clear();
  options_.test.clear();
  std::filesystem::remove(Path("out/train.json"));
  EXPECT_THAT(std::string(Run().message()), HasSubstr("test.json already exists"));
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  for (const char* split : {"valid", "test"}) {
    EXPECT_FALSE(std::filesystem::exists(Path(absl::StrCat("out/", split, ".json")))) << split;
  }
}

TEST_F(PrepareTest, ATextThatTheOutputWouldReplaceIsKept) {
  std::filesystem::create_directories(options_.output);
  options_.overwrite = true;
  options_.training = {.algorithm = PieceAlgorithm::kWord, .size = 0};
  for (const char* name : {"source.txt", "vocabulary.txt", "test.json", "cleaning.json", "train.00007.shard"}) {
    Write(absl::StrCat("out/", name), kEnglish);
    options_.train = {{Path(absl::StrCat("out/", name)), Path("train.de")}};
    ExpectError({absl::StrCat("may replace ", Path("out/"), name), "which is an input"});
    EXPECT_EQ(Read(absl::StrCat("out/", name)), kEnglish);
  }
  options_.train = {{Path("train.en"), Path("train.de")}};
  options_.list = Path("out/test.json");
  ExpectError({"may replace " + Path("out/test.json")});
}

class SurplusShardsTest : public PrepareTest {
 protected:
  // A corpus of four samples, each in a shard of its own.
  void WriteFourShards(const std::string& split) const {
    CorpusWriter writer = *CorpusWriter::Create({.prefix = Path("out/" + split),
                                                 .source_vocabulary = {"vocabulary.model", 60, 0},
                                                 .target_vocabulary = {"vocabulary.model", 60, 0},
                                                 .corpora = {"one"},
                                                 .shard_bytes = 1});
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(writer.Add(Sample{.source = {4}, .target = {5}}.view()).ok());
    ASSERT_EQ(writer.Finish()->shards.size(), 4u);
  }
  std::vector<std::string> Shards() const {
    std::vector<std::string> shards;
    const std::vector<std::string> names = *ListDirectory(Path("out"));
    std::ranges::copy_if(names, std::back_inserter(shards),
                         [](const std::string& name) { return name.ends_with(".shard"); });
    return shards;
  }
};

TEST_F(SurplusShardsTest, OverwritingLeavesNoShardThatOnlyTheCorpusOfBeforeNamed) {
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  WriteFourShards("train");
  WriteFourShards("valid");
  Write("out/train.00009.shard", "nobody's");
  ASSERT_EQ(Shards().size(), 9u);
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(Shards(), ElementsAre("train.00000.shard", "train.00009.shard"));
  EXPECT_EQ(OpenCorpus("train").size(), 3);
}

TEST_F(SurplusShardsTest, WhatIsNoShardIsKept) {
  ASSERT_TRUE(Run().ok());
  CorpusManifest manifest = *ManifestFromJson(Read("out/train.json"), "train.json");
  manifest.shards[0].file = "notes";
  Write("out/train.json", ManifestToJson(manifest));
  std::filesystem::create_directory(Path("out/notes"));
  Write("out/notes/mine", "mine");
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Read("out/notes/mine"), "mine");
}

// A process that is killed while it moves its files into place leaves some, and shards that no manifest names.
TEST_F(SurplusShardsTest, WhatAKilledProcessLeftGoesAsWell) {
  std::filesystem::create_directories(options_.output);
  WriteFourShards("train");
  WriteFourShards("valid");
  std::filesystem::remove(Path("out/train.json"));
  std::filesystem::remove(Path("out/valid.json"));
  Write("out/test.00000.shard.partial", "half");
  Write("out/train.mine.shard", "nobody's");
  std::filesystem::create_directories(Path("out/.hadal.prepare"));
  Write("out/.hadal.prepare/train.json", "{");
  ASSERT_TRUE(Run().ok());
  EXPECT_THAT(*ListDirectory(Path("out")),
              ElementsAre("cleaning.json", "train.00000.shard", "train.json", "train.mine.shard", "vocabulary.model"));
  EXPECT_EQ(OpenCorpus("train").size(), 3);
}

TEST_F(SurplusShardsTest, AProcessThatFailsWhileItMovesLeavesWordOfIt) {
  ASSERT_TRUE(Run().ok());
  WriteFourShards("train");
  {
    PrepareOutput output = *PrepareOutput::Take(options_.output, /*overwrite=*/true, /*given=*/nullptr);
    std::filesystem::create_directories(Path("out/folder/full"));
    Write("out/.hadal.prepare/folder", "cannot replace a folder");
    EXPECT_FALSE(output.Commit({}).ok());
  }
  std::filesystem::remove_all(Path("out/folder"));
  EXPECT_FALSE(std::filesystem::exists(Path("out/train.json")));
  EXPECT_FALSE(std::filesystem::exists(Path("out/cleaning.json"))) << "that of the corpus of before";
  ASSERT_EQ(Run(), absl::OkStatus());
  EXPECT_THAT(*ListDirectory(Path("out")),
              ElementsAre("cleaning.json", "train.00000.shard", "train.json", "vocabulary.model"));
}

TEST_F(SurplusShardsTest, ADamagedManifestNamesNothing) {
  ASSERT_TRUE(Run().ok());
  WriteFourShards("train");
  Write("out/train.json", "{");
  options_.overwrite = true;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Shards().size(), 4u);
  EXPECT_EQ(OpenCorpus("train").size(), 3);
}

}  // namespace
}  // namespace hadal
