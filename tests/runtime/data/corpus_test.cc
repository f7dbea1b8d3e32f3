#include <cmath>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/crc32c.h"
#include "runtime/data/corpus.h"
#include "runtime/data/corpus_shard.h"
#include "runtime/files.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/recorded_syncs.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::vector<Sample> Samples(int32_t count) {
  std::vector<Sample> samples;
  for (int32_t i = 0; i < count; ++i) {
    Sample& sample = samples.emplace_back();
    sample.corpus_id = i % 2;
    sample.weight = 0.5f * static_cast<float>(i % 3);
    if (i % 4 == 0) sample.prefix = {7};
    for (int32_t k = 0; k < i % 6; ++k) sample.source.push_back(4 + (i + k) % 90);
    for (int32_t k = 0; k < i % 5; ++k) sample.target.push_back(3 + (i * k) % 40);
  }
  return samples;
}

void ExpectEqual(const SampleView& actual, const Sample& expected) {
  EXPECT_EQ(actual.corpus_id, expected.corpus_id);
  EXPECT_EQ(actual.weight, expected.weight);
  EXPECT_THAT(actual.prefix, ElementsAreArray(expected.prefix));
  EXPECT_THAT(actual.source, ElementsAreArray(expected.source));
  EXPECT_THAT(actual.target, ElementsAreArray(expected.target));
}

class CorpusTest : public ::testing::Test {
 protected:
  std::string prefix() const { return directory_ / "train"; }
  std::string shard() const { return prefix() + ".00000.shard"; }

  CorpusManifest Store(const std::vector<Sample>& samples, int64_t shard_bytes = int64_t{1} << 20) {
    CorpusWriter writer = *CorpusWriter::Create({.prefix = prefix(),
                                                 .source_vocabulary = {"source.model", 100, 17},
                                                 .target_vocabulary = {"target.model", 50, 18},
                                                 .corpora = {"one", "two"},
                                                 .shard_bytes = shard_bytes});
    for (const Sample& sample : samples) EXPECT_TRUE(writer.Add(sample.view()).ok());
    return *writer.Finish();
  }

  // Opening must fail as damage, and the message must name `file`.
  void ExpectDamage(const std::string& file, const std::string& what) {
    const absl::StatusOr<Corpus> corpus = Corpus::Open(prefix());
    ASSERT_FALSE(corpus.ok()) << what;
    EXPECT_EQ(corpus.status().code(), absl::StatusCode::kDataLoss) << what << corpus.status();
    EXPECT_THAT(std::string(corpus.status().message()), HasSubstr(file)) << what;
    EXPECT_THAT(std::string(corpus.status().message()), HasSubstr("hadal prepare")) << what;
  }

  const TemporaryDirectory directory_;
};

TEST_F(CorpusTest, WhatIsWrittenIsReadAcrossShards) {
  const std::vector<Sample> samples = Samples(60);
  const CorpusManifest written = Store(samples, 500);
  EXPECT_GT(written.shards.size(), 3u);
  const absl::StatusOr<Corpus> corpus = Corpus::Open(prefix());
  ASSERT_EQ(corpus->size(), 60);
  for (int64_t i = 0; i < 60; ++i) ExpectEqual(corpus->sample(i), samples[static_cast<size_t>(i)]);
  const CorpusManifest& manifest = corpus->manifest();
  EXPECT_EQ(manifest.source_vocabulary.file, "source.model");
  EXPECT_EQ(manifest.source_vocabulary.crc32c, 17u);
  EXPECT_EQ(manifest.target_vocabulary.size, 50);
  EXPECT_THAT(manifest.corpora, ::testing::ElementsAre("one", "two"));
  EXPECT_EQ(corpus->VocabularyPath(manifest.target_vocabulary), directory_ / "target.model");
}

TEST_F(CorpusTest, TheProcessesOfAHostReadEveryByteTogether) {
  const CorpusManifest manifest = Store(Samples(60), 500);
  ASSERT_GT(manifest.shards.size(), 3u);
  for (size_t damaged = 0; damaged < manifest.shards.size(); ++damaged) {
    const std::string path = directory_ / manifest.shards[damaged].file;
    const std::string bytes = Contents(path);
    std::string flipped = bytes;
    flipped.back() ^= 1;  // of a token
    SetContents(path, flipped);
    for (int process = 0; process < 3; ++process) {
      const absl::StatusOr<Corpus> corpus = Corpus::Open(prefix(), {.process = process, .processes = 3});
      EXPECT_EQ(corpus.ok(), static_cast<int>(damaged % 3) != process) << damaged << corpus.status();
    }
    SetContents(path, bytes);
  }
}

TEST_F(CorpusTest, WhatKeepsReadsInsideTheFileIsLookedAtByAll) {
  Store(Samples(60));
  std::string bytes = Contents(shard());
  const int64_t far_away = int64_t{1} << 40;
  std::memcpy(bytes.data() + sizeof(ShardHeader) + 5 * sizeof(SampleRecord), &far_away, sizeof(far_away));
  SetContents(shard(), bytes);
  for (int process = 0; process < 3; ++process) {
    EXPECT_EQ(Corpus::Open(prefix(), {.process = process, .processes = 3}).status().code(),
              absl::StatusCode::kDataLoss);
  }
  SetContents(shard(), bytes.substr(0, bytes.size() - 4));
  EXPECT_FALSE(Corpus::Open(prefix(), {.process = 1, .processes = 3}).ok());
}

TEST_F(CorpusTest, WhatARunThatWasEndedLeftIsNotInTheWay) {
  SetContents(shard() + ".partial", "half a shard");
  SetContents(prefix() + ".json.partial", "{");
  Store(Samples(9));
  EXPECT_EQ(Corpus::Open(prefix())->size(), 9);
  EXPECT_FALSE(PathExists(shard() + ".partial"));
}

TEST_F(CorpusTest, StatisticsCountWhatIsThere) {
  EXPECT_EQ(Store({}).samples, 0);
  EXPECT_EQ(Corpus::Open(prefix())->size(), 0);
  const std::vector<Sample> samples = {{.prefix = {9}, .source = {4, 3, 5}, .target = {3, 3}},
                                       {.source = {4}, .target = {6, 7, 8}}};
  const CorpusStatistics statistics = Store(samples).statistics;
  EXPECT_EQ(statistics.source_tokens, 5);
  EXPECT_EQ(statistics.target_tokens, 5);
  EXPECT_EQ(statistics.source_unknown, 1);
  EXPECT_EQ(statistics.target_unknown, 2);
  EXPECT_EQ(statistics.longest_source, 4);
  EXPECT_EQ(statistics.longest_target, 3);
  const CorpusStatistics tagged =
      Store({{.source = {5}, .target = {5, 6}}, {.prefix = {3}, .source = {5}, .target = {5}}}).statistics;
  EXPECT_EQ(tagged.source_unknown, 1) << "a prefix counts";
  EXPECT_EQ(tagged.longest_target, 2) << "not the last one's";
}

TEST_F(CorpusTest, AMonolingualCorpusHasTargetsAlone) {
  absl::StatusOr<CorpusWriter> writer =
      CorpusWriter::Create({.prefix = prefix(), .target_vocabulary = {.file = "v.txt", .size = 50}, .corpora = {"a"}});
  const Sample line = {.target = {4, 5}}, pair = {.source = {4}, .target = {4}};
  ASSERT_TRUE(writer->Add(line.view()).ok());
  EXPECT_FALSE(writer->Add(pair.view()).ok()) << "there is no vocabulary its source could be of";
  ASSERT_TRUE(writer->Finish().ok());
  const absl::StatusOr<Corpus> corpus = Corpus::Open(prefix());
  EXPECT_TRUE(corpus->manifest().monolingual());
  ASSERT_EQ(corpus->size(), 1);
  EXPECT_FALSE(corpus->sample(0).has_source);
  ExpectEqual(corpus->sample(0), line);
}

TEST_F(CorpusTest, IdsOutsideTheVocabularyAreRefusedWhenWriting) {
  CorpusWriter writer = *CorpusWriter::Create(
      {.prefix = prefix(), .source_vocabulary = {"v", 10, 0}, .target_vocabulary = {"v", 10, 0}, .corpora = {"one"}});
  for (const int32_t id : {-1, 0, 2, 10}) {
    EXPECT_FALSE(writer.Add(Sample{.source = {id}, .target = {4}}.view()).ok()) << id;
    EXPECT_FALSE(writer.Add(Sample{.source = {4}, .target = {id}}.view()).ok()) << id;
    EXPECT_FALSE(writer.Add(Sample{.prefix = {id}, .source = {4}, .target = {4}}.view()).ok()) << id;
  }
  EXPECT_TRUE(writer.Add(Sample{.source = {3}, .target = {9}}.view()).ok());
}

TEST_F(CorpusTest, DamagedFramesAreRefusedWhenWriting) {
  CorpusWriter writer = *CorpusWriter::Create(
      {.prefix = prefix(), .target_vocabulary = {"v", 10, 0}, .corpora = {"one"}, .inputs = {.frame_width = 2}});
  const auto add = [&](const std::vector<float>& frames, int32_t width) {
    return writer.Add(Sample{.target = {4}, .frames = frames, .frame_width = width}.view());
  };
  EXPECT_TRUE(add({1, 2, 3, 4}, 2).ok());
  EXPECT_THAT(std::string(add({}, 2).message()), HasSubstr("0 values are no frames of 2"));
  EXPECT_THAT(std::string(add({1, 2, 3}, 2).message()), HasSubstr("3 values are no frames of 2"));
  EXPECT_THAT(std::string(add({1, 2, 3}, 3).message()), HasSubstr("frames of 3 values, those of the corpus have 2"));
  EXPECT_THAT(std::string(add({1, NAN}, 2).message()), HasSubstr("not finite"));
  EXPECT_EQ(writer.Finish()->statistics.source_tokens, 2) << "frames";
}

TEST_F(CorpusTest, AFullDiskLeavesNoHalfOfAShard) {
  CorpusWriter writer =
      *CorpusWriter::Create({.prefix = prefix(), .target_vocabulary = {"v", 10, 0}, .corpora = {"one"}});
  ASSERT_TRUE(writer.Add(Sample{.target = std::vector<int32_t>(1000, 4)}.view()).ok());
  {
    const FileSizeLimit limit(500);
    EXPECT_EQ(writer.Finish().status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_FALSE(PathExists(shard() + ".partial"));
}

// The first token of a block is an input alone.
TEST_F(CorpusTest, ABlockHasATokenToPredict) {
  for (const std::vector<int32_t>& block : {std::vector<int32_t>{4, 5, 6}, {4}}) {
    CorpusWriter writer = *CorpusWriter::Create(
        {.prefix = prefix(), .target_vocabulary = {"v", 10, 0}, .corpora = {"one"}, .form = {.block = 2}});
    ASSERT_TRUE(writer.Add(Sample{.target = block}.view()).ok());
    const CorpusStatistics statistics = writer.Finish()->statistics;
    EXPECT_EQ(statistics.target_tokens, std::ssize(block) - 1);
    EXPECT_EQ(statistics.longest_target, std::ssize(block) - 1);
    const absl::StatusOr<Corpus> corpus = Corpus::Open(prefix());
    ASSERT_EQ(corpus.ok(), block.size() > 1) << corpus.status();
    if (corpus.ok()) {
      EXPECT_EQ(corpus->sample(0).form.block, 2);
    }
  }
}

TEST_F(CorpusTest, WhatTheManifestNamesIsOnTheDeviceBefore) {
  const RecordedSyncs syncs;
  Store(Samples(4));
  const std::vector<std::string> paths = syncs.paths();
  ASSERT_GE(paths.size(), 3u);
  EXPECT_THAT(std::vector<std::string>(paths.begin(), paths.begin() + 3),
              ::testing::ElementsAre(shard() + ".partial", directory_.path(), prefix() + ".json.partial"));
}

TEST_F(CorpusTest, AnUnfinishedCorpusCannotBeOpened) {
  Store(Samples(5));
  CorpusWriter writer = *CorpusWriter::Create({.prefix = prefix()});
  EXPECT_EQ(Corpus::Open(prefix()).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CorpusTest, TruncationAtEveryLengthIsRefused) {
  Store(Samples(4));
  for (const std::string& path : {shard(), prefix() + ".json"}) {
    const std::string bytes = Contents(path);
    const size_t end = path == shard() ? bytes.size() : bytes.size() - 1;  // the manifest's last byte is a newline
    for (size_t length = 0; length < end; ++length) {
      SetContents(path, bytes.substr(0, length));
      ExpectDamage(std::filesystem::path(path).filename(), absl::StrCat("cut to ", length));
    }
    SetContents(path, bytes);
  }
  SetContents(shard(), Contents(shard()) + '\0');
  ExpectDamage("train.00000.shard", "one byte more");
}

TEST_F(CorpusTest, EveryFlippedByteOfAShardIsRefused) {
  Store(Samples(4));
  const std::string bytes = Contents(shard());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string altered = bytes;
    altered[i] = static_cast<char>(altered[i] ^ 0x10);
    SetContents(shard(), altered);
    ExpectDamage("train.00000.shard", absl::StrCat("byte ", i));
  }
}

TEST_F(CorpusTest, EveryChangedLetterOrDigitOfAManifestIsRefused) {
  Store(Samples(4));
  const std::string bytes = Contents(prefix() + ".json");
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == ' ' || bytes[i] == '\n') continue;  // layout means nothing
    std::string altered = bytes;
    altered[i] = static_cast<char>(altered[i] ^ 1);
    SetContents(prefix() + ".json", altered);
    const absl::StatusOr<Corpus> corpus = Corpus::Open(prefix());
    EXPECT_FALSE(corpus.ok()) << i;
    EXPECT_EQ(corpus.status().code(), absl::StatusCode::kDataLoss) << i << corpus.status();
  }
}

TEST_F(CorpusTest, AFolderInTheirPlaceIsDamage) {
  Store(Samples(4));
  for (const std::string& path : {shard(), prefix() + ".json"}) {
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    EXPECT_EQ(Corpus::Open(prefix()).status().code(), absl::StatusCode::kDataLoss) << path;
  }
}

TEST_F(CorpusTest, AMissingShardIsNamed) {
  Store(Samples(4));
  std::filesystem::remove(shard());
  const absl::Status status = Corpus::Open(prefix()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("train.00000.shard"), HasSubstr("train.json names")));
}

// A shard whose checksum is right. What it is refused for without its manifest: corpus_shard_test.cc.
TEST_F(CorpusTest, AShardIsHeldToItsManifest) {
  CorpusManifest manifest = Store(Samples(5));
  const std::string bytes = Contents(shard());
  const auto refusal_with = [&](size_t place, int32_t value) {
    std::string altered = bytes;
    std::memcpy(altered.data() + place, &value, sizeof(value));
    SetContents(shard(), altered);
    manifest.shards[0].crc32c = Crc32c(altered.data(), altered.size());
    SetContents(prefix() + ".json", ManifestToJson(manifest));
    const absl::Status status = Corpus::Open(prefix()).status();
    EXPECT_NE(status.ok(), absl::IsDataLoss(status)) << status;
    return std::string(status.message());
  };
  const size_t corpus_id = sizeof(ShardHeader) + offsetof(SampleRecord, corpus_id), token = bytes.size() - 4;
  EXPECT_EQ(refusal_with(corpus_id, 1), "");
  EXPECT_THAT(refusal_with(corpus_id, 2), HasSubstr("its corpus id is 2, there are 2 corpora"));
  EXPECT_EQ(refusal_with(token, 49), "");
  EXPECT_THAT(refusal_with(token, 50), HasSubstr("its target has the token id 50, the ids of text are 3 to 49"));
  manifest.shards[0].samples = manifest.samples = 4;
  EXPECT_THAT(refusal_with(token, 49), HasSubstr("train.00000.shard: it has 5 samples, its manifest says 4"));
}

using ::testing::HasSubstr;

class CorpusVocabularyTest : public ::testing::Test {
 protected:
  CorpusVocabularyTest() {
    EXPECT_TRUE(english_.Save(directory_ / "english.txt").ok());
    EXPECT_TRUE(german_.Save(directory_ / "german.txt").ok());
  }
  static VocabularyReference ReferenceTo(const Vocabulary& vocabulary, const std::string& file) {
    return {.file = file, .size = vocabulary.size(), .crc32c = vocabulary.crc32c()};
  }
  // A corpus of one sample with these vocabularies; a source of size 0: plain text.
  Corpus Made(const VocabularyReference& source, const VocabularyReference& target) const {
    auto writer = CorpusWriter::Create({.prefix = directory_ / "corpus",
                                        .source_vocabulary = source,
                                        .target_vocabulary = target,
                                        .corpora = {"a test"}})
                      .value();
    Sample sample{.target = {4}};
    if (source.size > 0) sample.source = {4};
    EXPECT_TRUE(writer.Add(sample.view()).ok());
    EXPECT_TRUE(writer.Finish().ok());
    return Corpus::Open(directory_ / "corpus").value();
  }

  const TemporaryDirectory directory_;
  const Vocabulary english_ = *Vocabulary::FromTokens({"the", "cat"});
  const Vocabulary german_ = *Vocabulary::FromTokens({"die", "katze", "schläft"});
  const VocabularyReference english_reference_ = ReferenceTo(english_, "english.txt");
  const VocabularyReference german_reference_ = ReferenceTo(german_, "german.txt");
};

TEST_F(CorpusVocabularyTest, EachSideHasItsOwn) {
  const auto loaded = LoadVocabularies(Made(english_reference_, german_reference_));
  EXPECT_EQ(loaded->source.contents(), english_.contents());
  EXPECT_EQ(loaded->target.contents(), german_.contents());
}

TEST_F(CorpusVocabularyTest, OneMayServeBothOrATextAlone) {
  const VocabularyReference none;
  for (const VocabularyReference& source : {german_reference_, none}) {
    const auto loaded = LoadVocabularies(Made(source, german_reference_));
    EXPECT_EQ(loaded->source.contents(), german_.contents());
    EXPECT_EQ(loaded->target.contents(), german_.contents());
  }
}

// On either side: other bytes as long as these, and the same bytes where the corpus counts other ids.
TEST_F(CorpusVocabularyTest, OneThatIsNotTheCorpussIsRefused) {
  VocabularyReference other_bytes = english_reference_, other_size = english_reference_;
  ++other_bytes.crc32c;
  ++other_size.size;
  for (const VocabularyReference& wrong : {other_bytes, other_size}) {
    for (const bool is_source : {true, false}) {
      const Corpus corpus = is_source ? Made(wrong, german_reference_) : Made(german_reference_, wrong);
      const absl::Status status = LoadVocabularies(corpus).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("english.txt is not the vocabulary"));
    }
  }
}

TEST_F(CorpusVocabularyTest, OneThatIsGoneIsAnError) {
  const Corpus corpus = Made({.file = "nowhere.txt", .size = 6}, german_reference_);
  EXPECT_EQ(LoadVocabularies(corpus).status().code(), absl::StatusCode::kDataLoss);
  SetContents(directory_ / "english.txt", "no counts\n");
  EXPECT_EQ(LoadVocabularies(Made(english_reference_, german_reference_)).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace

}  // namespace hadal
