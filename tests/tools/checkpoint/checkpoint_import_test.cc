// `hadal checkpoint import` of plain files: an export comes back with the same bits; broken files are refused.
#include "tools/checkpoint/checkpoint_command.h"

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "layers/method_presets.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "runtime/files.h"
#include "tests/support/saved_model.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointImportTest : public ::testing::Test {
 protected:
  CheckpointImportTest() : words_(*Vocabulary::FromTokens({"a", "b", "c"})) {
    ModelOptions model{.encoder_layers = 2,
                       .decoder_layers = 1,
                       .d_model = 8,
                       .d_ff = 12,
                       .heads = 1,
                       .source_vocabulary = words_.size(),
                       .target_vocabulary = words_.size(),
                       .max_positions = 8};
    ApplyResidualMethod(ResidualMethod::kDlclPre, model);  // the rows of its matrices are parameters of their own
    EXPECT_TRUE(
        SaveModel({.model = model, .vocabularies = {VocabularyFile("vocabulary", words_)}, .config = "seed: 7\n"},
                  folder_ / "run")
            .ok());
    checkpoint_ = FindLatest(folder_ / "run")->checkpoint.directory;
    std::ostringstream out;
    EXPECT_TRUE(ExportCheckpoint({.checkpoint = checkpoint_, .out = folder_ / "plain/model.safetensors"}, out).ok());
  }

  absl::Status Import() {
    std::ostringstream out;
    return ImportCheckpoint({.source = folder_ / "plain/model.safetensors", .out = folder_ / "back"}, out);
  }
  // Imports after a change of the settings; nothing is left behind an error.
  std::string ErrorAfter(const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json json = nlohmann::json::parse(std::ifstream(folder_ / "plain/model.json"));
    const nlohmann::json kept = json;
    change(json);
    std::ofstream(folder_ / "plain/model.json") << json;
    const absl::Status status = Import();
    std::ofstream(folder_ / "plain/model.json") << kept;
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(*ListDirectory(folder_.path()), ElementsAre("plain", "run"));
    return std::string(status.message());
  }

  const Vocabulary words_;
  TemporaryDirectory folder_;
  std::string checkpoint_;
};

TEST_F(CheckpointImportTest, AnExportComesBackWithTheSameBits) {
  ASSERT_TRUE(Import().ok());
  std::ostringstream out;
  const absl::StatusOr<bool> same = DiffCheckpoints(checkpoint_, folder_ / "back", {.weights_only = true}, out);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(*same) << out.str();
  const absl::StatusOr<ModelCheckpoint> model = ModelCheckpoint::Open(folder_ / "back");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->config_text(), "seed: 7\n");
  EXPECT_EQ(model->progress().update, 1);
  EXPECT_EQ(model->target_vocabulary().contents(), words_.contents());
}

TEST_F(CheckpointImportTest, AParameterOfSeveralSlicesComesBackWhole) {
  ModelOptions model{.encoder_layers = 1,
                     .decoder_layers = 1,
                     .d_model = 8,
                     .d_ff = 131200,  // fc1 and fc2 have more than 2^20 elements
                     .heads = 1,
                     .source_vocabulary = words_.size(),
                     .target_vocabulary = words_.size(),
                     .max_positions = 8};
  ApplyResidualMethod(ResidualMethod::kDlclPre, model);
  ASSERT_TRUE(
      SaveModel({.model = model, .vocabularies = {VocabularyFile("vocabulary", words_)}}, folder_ / "wide").ok());
  const std::string wide = FindLatest(folder_ / "wide")->checkpoint.directory, plain = folder_ / "w/model.safetensors";
  std::ostringstream out;
  ASSERT_TRUE(ExportCheckpoint({.checkpoint = wide, .out = plain}, out).ok());
  ASSERT_TRUE(ImportCheckpoint({.source = plain, .out = folder_ / "wide_back"}, out).ok());
  const absl::StatusOr<bool> same = DiffCheckpoints(wide, folder_ / "wide_back", {.weights_only = true}, out);
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(*same) << out.str();
}

TEST_F(CheckpointImportTest, EachSideHasItsOwnVocabulary) {
  const Vocabulary more = *Vocabulary::FromTokens({"a", "b", "c", "d", "e"});
  ModelOptions model{.encoder_layers = 1,
                     .decoder_layers = 1,
                     .d_model = 8,
                     .d_ff = 12,
                     .heads = 1,
                     .source_vocabulary = words_.size(),
                     .target_vocabulary = more.size(),
                     .max_positions = 8,
                     .sharing = EmbeddingSharing::kDecoder};
  ApplyResidualMethod(ResidualMethod::kDeepNorm, model);
  ASSERT_TRUE(SaveModel({.model = model,
                         .vocabularies = {VocabularyFile("source.vocabulary", words_),
                                          VocabularyFile("target.vocabulary", more)}},
                        folder_ / "two")
                  .ok());
  std::ostringstream out;
  const std::string plain = folder_ / "t/model.safetensors";
  ASSERT_TRUE(ExportCheckpoint({.checkpoint = folder_ / "two", .out = plain}, out).ok());
  const absl::Status imported = ImportCheckpoint({.source = plain, .out = folder_ / "two_back"}, out);
  EXPECT_TRUE(imported.ok()) << imported;
}

TEST_F(CheckpointImportTest, NothingIsReplaced) {
  ASSERT_TRUE(Import().ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Import()));
}

TEST_F(CheckpointImportTest, WhatDiffersFromTheSettingsIsNamed) {
  EXPECT_THAT(ErrorAfter([](nlohmann::json& json) { json["model"]["d_ff"] = 16; }),
              HasSubstr("encoder.layers.0.fc1.weight is F32 [12, 8], its settings give F32 [16, 8]"));
  EXPECT_THAT(ErrorAfter([](nlohmann::json& json) { json["model"]["sharing"] = "decoder"; }),
              HasSubstr("lacks the tensor decoder.embed_tokens.weight"));
  EXPECT_THAT(ErrorAfter([](nlohmann::json& json) { json["model"]["encoder"]["combine_layers"] = false; }),
              HasSubstr("has the tensor encoder.dlcl."));
  EXPECT_THAT(ErrorAfter([](nlohmann::json& json) { json.erase("model"); }), HasSubstr("the field model is missing"));
  EXPECT_THAT(ErrorAfter([](nlohmann::json& json) {
                json["model"]["source_vocabulary"] = json["model"]["target_vocabulary"] = 9;
              }),
              HasSubstr("vocabulary.txt has 7 ids, the model in " + (folder_ / "plain/model.json") + " 9"));
}

}  // namespace
}  // namespace hadal
