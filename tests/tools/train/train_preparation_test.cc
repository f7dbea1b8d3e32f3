#include "tools/train/training_sinks.h"

#include "gmock/gmock.h"
#include "runtime/data/corpus.h"
#include "runtime/data/vocabulary.h"
#include "tests/support/temporary_directory.h"
#include "tools/config/config_loading.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TrainPreparationTest : public ::testing::Test {
 protected:
  TrainPreparationTest() : words_(*Vocabulary::FromTokens({"a", "b", "c"})), others_(*Vocabulary::FromTokens({"x"})) {
    arguments_.run_directory = directory_ / "run";
    Configure("data { train: \"" + directory_ / "train" + "\" }");
  }

  // A corpus of one sentence, of vocabularies that lie beside it.
  void StoreCorpus(const std::string& name, const Vocabulary& source, const Vocabulary& target) {
    const auto stored = [&](const Vocabulary& vocabulary) {
      const std::string file = std::to_string(vocabulary.crc32c()) + std::string(vocabulary.extension());
      EXPECT_TRUE(vocabulary.Save(directory_ / file).ok());
      return VocabularyReference{file, vocabulary.size(), vocabulary.crc32c()};
    };
    CorpusWriter writer = *CorpusWriter::Create({.prefix = directory_ / name,
                                                 .source_vocabulary = stored(source),
                                                 .target_vocabulary = stored(target),
                                                 .corpora = {name}});
    const Sample sample{.source = {4}, .target = {4}};
    ASSERT_TRUE(writer.Add(sample.view()).ok());
    ASSERT_TRUE(writer.Finish().ok());
  }
  // One config file: a small model, and `text`.
  void Configure(const std::string& text) {
    SetContents(directory_ / "run.textproto", "model { d_model: 16 d_ff: 32 heads: 2 }\nstop { steps: 10 }\n" + text);
    arguments_.config.files = {directory_ / "run.textproto"};
  }
  absl::StatusOr<PreparedRun> Prepare() const {
    return PrepareRun(arguments_, LoadConfig(arguments_.config.files, arguments_.config.overrides), {});
  }
  std::string Error(absl::StatusCode code) {
    const absl::Status status = Prepare().status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  const TemporaryDirectory directory_;
  const Vocabulary words_, others_;
  TrainArguments arguments_;
};

TEST_F(TrainPreparationTest, TheModelsVocabulariesAreTheCorpuss) {
  StoreCorpus("train", words_, others_);
  arguments_.config.overrides = {"model.sharing=none"};
  const PreparedRun run = Prepare().value();
  EXPECT_EQ(run.options.train.model.source_vocabulary, 7);
  EXPECT_EQ(run.options.train.model.target_vocabulary, 5);
  EXPECT_EQ(run.options.train.run_directory, arguments_.run_directory);
  EXPECT_EQ(run.train->size(), 1);
  EXPECT_FALSE(run.validation.has_value());
  ASSERT_EQ(run.attachments.size(), 2u);
  EXPECT_EQ(run.attachments[0].name, "source.vocabulary.txt");
  EXPECT_EQ(run.attachments[0].contents, words_.contents());
  EXPECT_EQ(run.attachments[1].name, "target.vocabulary.txt");
  EXPECT_EQ(run.attachments[1].contents, others_.contents());
}

TEST_F(TrainPreparationTest, ASharedVocabularyIsCarriedOnce) {
  StoreCorpus("train", words_, words_);
  const PreparedRun run = Prepare().value();
  ASSERT_EQ(run.attachments.size(), 1u);
  EXPECT_EQ(run.attachments[0].name, "vocabulary.txt");
}

// Of one size or not: an id is another piece on either side.
TEST_F(TrainPreparationTest, OneEmbeddingForAllNeedsOneVocabulary) {
  StoreCorpus("train", words_, *Vocabulary::FromTokens({"x", "y", "z"}));
  arguments_.config.overrides = {"model.sharing=all"};
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr("needs one vocabulary"), HasSubstr("Prepare it without --separate"),
                    HasSubstr("\n  --set model.sharing=all")));
  for (const char* sharing : {"decoder", "none"}) {
    arguments_.config.overrides = {std::string("model.sharing=") + sharing};
    EXPECT_TRUE(Prepare().ok()) << sharing;
  }
}

TEST_F(TrainPreparationTest, ACorpusThatIsNotThereIsToldWithItsField) {
  EXPECT_THAT(Error(absl::StatusCode::kNotFound),
              AllOf(HasSubstr(directory_ / "train"), HasSubstr("data.train is a prefix of files")));
  StoreCorpus("train", words_, words_);
  arguments_.config.overrides = {"data.validation=" + directory_ / "valid"};
  EXPECT_THAT(Error(absl::StatusCode::kNotFound),
              AllOf(HasSubstr(directory_ / "valid"), HasSubstr("data.validation is a prefix of files")));
}

TEST_F(TrainPreparationTest, CorporaOfDifferentVocabulariesAreRefused) {
  StoreCorpus("train", words_, words_);
  arguments_.config.overrides = {"data.validation=" + directory_ / "valid"};
  StoreCorpus("valid", words_, words_);
  EXPECT_TRUE(Prepare().ok());
  for (const bool source : {false, true}) {
    StoreCorpus("valid", source ? others_ : words_, source ? words_ : others_);
    EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument), HasSubstr("prepared with different vocabularies"));
  }
}

TEST_F(TrainPreparationTest, AnErrorSaysWhereItsFieldsWereSet) {
  StoreCorpus("train", words_, words_);
  arguments_.config.overrides = {"model.heads=3"};
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument),
              AllOf(HasSubstr("\n  --set model.heads=3"), HasSubstr("run.textproto:1:9: model.d_model = 16")));
}

TEST_F(TrainPreparationTest, WhatTheCommandLineSaysIsRefusedToo) {
  StoreCorpus("train", words_, words_);
  arguments_.stop_after = "soon";
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument), HasSubstr("soon"));
  arguments_.run_directory = "";
  EXPECT_THAT(Error(absl::StatusCode::kInvalidArgument), HasSubstr("--run-dir is empty"));
}

}  // namespace
}  // namespace hadal
