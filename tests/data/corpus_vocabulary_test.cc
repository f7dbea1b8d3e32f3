#include "runtime/data/corpus.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

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
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->source.contents(), english_.contents());
  EXPECT_EQ(loaded->target.contents(), german_.contents());
}

TEST_F(CorpusVocabularyTest, OneMayServeBothOrATextAlone) {
  const VocabularyReference none;
  for (const VocabularyReference& source : {german_reference_, none}) {
    const auto loaded = LoadVocabularies(Made(source, german_reference_));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
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
}

}  // namespace
}  // namespace hadal
