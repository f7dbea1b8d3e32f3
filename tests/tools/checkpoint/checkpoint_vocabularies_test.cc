// Whether a checkpoint may go on with a corpus, by the vocabularies of both.
#include "tools/checkpoint/checkpoint_vocabularies.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "layers/method_presets.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "runtime/data/corpus.h"
#include "tests/support/saved_model.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CheckpointVocabulariesTest : public ::testing::Test {
 protected:
  CheckpointVocabulariesTest()
      : words_(*Vocabulary::FromTokens({"a", "b", "c"})), others_(*Vocabulary::FromTokens({"b", "a", "c"})) {}

  // A checkpoint that carries `vocabularies`.
  FoundCheckpoint Checkpoint(const std::vector<Attachment>& vocabularies) const {
    ModelOptions model{.encoder_layers = 1,
                       .decoder_layers = 1,
                       .d_model = 8,
                       .d_ff = 8,
                       .heads = 1,
                       .source_vocabulary = words_.size(),
                       .target_vocabulary = words_.size(),
                       .max_positions = 8};
    ApplyResidualMethod(ResidualMethod::kDeepNorm, model);
    const absl::Status saved = SaveModel({.model = model, .vocabularies = vocabularies}, directory_ / "run");
    EXPECT_TRUE(saved.ok()) << saved;
    return *FindLatest(directory_ / "run");
  }
  Corpus CorpusOfVocabularies(const Vocabulary& source, const Vocabulary& target) const {
    const auto stored = [&](const std::string& stem, const Vocabulary& vocabulary) {
      const std::string file = stem + std::string(vocabulary.extension());
      EXPECT_TRUE(vocabulary.Save(directory_ / file).ok());
      return VocabularyReference{file, vocabulary.size(), vocabulary.crc32c()};
    };
    const bool shared = source.contents() == target.contents();
    CorpusWriter writer = *CorpusWriter::Create({.prefix = directory_ / "train",
                                                 .source_vocabulary = stored(shared ? "vocabulary" : "source", source),
                                                 .target_vocabulary = stored(shared ? "vocabulary" : "target", target),
                                                 .corpora = {"one"}});
    EXPECT_TRUE(writer.Add(Sample{.source = {4}, .target = {4}}.view()).ok());
    EXPECT_TRUE(writer.Finish().ok());
    return *Corpus::Open(directory_ / "train");
  }

  static absl::Status Check(const FoundCheckpoint& checkpoint, const Corpus& corpus) {
    return CheckVocabularies(checkpoint, corpus.manifest(), *LoadVocabularies(corpus));
  }

  const TemporaryDirectory directory_;
  const Vocabulary words_, others_;
};

TEST_F(CheckpointVocabulariesTest, TheCorpussOwnAreTaken) {
  const FoundCheckpoint shared = Checkpoint({VocabularyFile("vocabulary", words_)});
  EXPECT_EQ(Check(shared, CorpusOfVocabularies(words_, words_)), absl::OkStatus());
}

TEST_F(CheckpointVocabulariesTest, AnotherOfTheSameSizeIsRefused) {
  const FoundCheckpoint checkpoint = Checkpoint({VocabularyFile("vocabulary", words_)});
  const absl::Status status = Check(checkpoint, CorpusOfVocabularies(others_, others_));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr(checkpoint.checkpoint.directory), HasSubstr("a different vocabulary than the corpus has"),
            HasSubstr("`hadal prepare --vocab`"), HasSubstr(checkpoint.checkpoint.directory + "/vocabulary.txt")));
  const absl::Status one_side = Check(checkpoint, CorpusOfVocabularies(words_, others_));
  EXPECT_THAT(std::string(one_side.message()), HasSubstr("a different target vocabulary"));
}

// The shorter one's ids are the same pieces; the model's tables are not as long.
TEST_F(CheckpointVocabulariesTest, OneThatGoesOnBehindTheOthersEndIsRefused) {
  const Vocabulary longer = *Vocabulary::FromTokens({"a", "b", "c", "d"});
  for (const bool carries_longer : {true, false}) {
    const FoundCheckpoint checkpoint = Checkpoint({VocabularyFile("vocabulary", carries_longer ? longer : words_)});
    const Vocabulary& corpuss = carries_longer ? words_ : longer;
    EXPECT_EQ(Check(checkpoint, CorpusOfVocabularies(corpuss, corpuss)).code(), absl::StatusCode::kInvalidArgument)
        << carries_longer;
  }
}

TEST_F(CheckpointVocabulariesTest, EachSideIsComparedWithItsOwn) {
  const FoundCheckpoint checkpoint =
      Checkpoint({VocabularyFile("source.vocabulary", words_), VocabularyFile("target.vocabulary", others_)});
  EXPECT_EQ(Check(checkpoint, CorpusOfVocabularies(words_, others_)), absl::OkStatus());
  EXPECT_THAT(std::string(Check(checkpoint, CorpusOfVocabularies(others_, words_)).message()),
              HasSubstr("a different source vocabulary"));
}

TEST_F(CheckpointVocabulariesTest, AFileOfTheSamePiecesMayDiffer) {
  const FoundCheckpoint checkpoint = Checkpoint({VocabularyFile("vocabulary", words_)});
  const Vocabulary counted = *Vocabulary::Parse("a 30\nb 20\nc 10\n", "dict.txt");
  ASSERT_NE(counted.crc32c(), words_.crc32c());
  EXPECT_EQ(Check(checkpoint, CorpusOfVocabularies(counted, counted)), absl::OkStatus());
}

TEST_F(CheckpointVocabulariesTest, ACheckpointWithoutVocabulariesIsTaken) {
  EXPECT_EQ(Check(Checkpoint({}), CorpusOfVocabularies(others_, others_)), absl::OkStatus());
}

}  // namespace
}  // namespace hadal
