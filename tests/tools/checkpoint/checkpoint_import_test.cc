// `hadal checkpoint import` of plain files: an export comes back with the same bits; broken files are refused.
#include "tools/checkpoint/checkpoint_command.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "layers/method_presets.h"
#include "layers/parameter_store.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "runtime/data/corpus.h"
#include "runtime/files.h"
#include "tests/support/saved_model.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_plan.h"
#include "tools/checkpoint/checkpoint_vocabularies.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelOptions TinyModel(ResidualMethod method, const Vocabulary& vocabulary, int32_t d_ff) {
  ModelOptions model = hadal::TinyModel({.encoder_layers = 2, .d_ff = d_ff, .vocabulary = vocabulary.size()});
  ApplyResidualMethod(method, model);
  return model;
}

class CheckpointImportTest : public ::testing::Test {
 protected:
  CheckpointImportTest() : words_(*Vocabulary::FromTokens({"a", "b", "c"})) {
    // The rows of its matrices are parameters of their own.
    const ModelOptions model = TinyModel(ResidualMethod::kDlclPre, words_, 12);
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

TEST_F(CheckpointImportTest, KeepsTheKindOfInputs) {
  nlohmann::json json = nlohmann::json::parse(std::ifstream(folder_ / "plain/model.json"));
  json["inputs"]["tags"] = "m2m100";
  json["update"] = 12;  // of a run begun with --init-from: more than its steps
  std::ofstream(folder_ / "plain/model.json") << json;
  ASSERT_EQ(Import(), absl::OkStatus());
  EXPECT_EQ(FindNamed(folder_ / "back")->manifest.inputs.tags, "m2m100");
  EXPECT_EQ(FindNamed(folder_ / "back")->manifest.progress.growth_update(), 12);
}

TEST_F(CheckpointImportTest, AnExportComesBackWithTheSameBits) {
  ASSERT_TRUE(Import().ok());
  std::ostringstream out;
  const bool same = DiffCheckpoints(checkpoint_, folder_ / "back", {.weights_only = true}, out).value();
  EXPECT_TRUE(same) << out.str();
  const ModelCheckpoint model = ModelCheckpoint::Open(folder_ / "back").value();
  EXPECT_EQ(model.config_text(), "seed: 7\n");
  EXPECT_EQ(model.progress().growth_update(), 1);
  EXPECT_EQ(model.target_vocabulary().contents(), words_.contents());
}

TEST_F(CheckpointImportTest, AParameterOfSeveralSlicesComesBackWhole) {
  // fc1 and fc2 have more than 2^20 elements.
  const ModelOptions model = TinyModel(ResidualMethod::kDlclPre, words_, 131200);
  ASSERT_TRUE(
      SaveModel({.model = model, .vocabularies = {VocabularyFile("vocabulary", words_)}}, folder_ / "wide").ok());
  const std::string wide = FindLatest(folder_ / "wide")->checkpoint.directory, plain = folder_ / "w/model.safetensors";
  std::ostringstream out;
  ASSERT_TRUE(ExportCheckpoint({.checkpoint = wide, .out = plain}, out).ok());
  ASSERT_TRUE(ImportCheckpoint({.source = plain, .out = folder_ / "wide_back"}, out).ok());
  const bool same = DiffCheckpoints(wide, folder_ / "wide_back", {.weights_only = true}, out).value();
  EXPECT_TRUE(same) << out.str();
  // As translation loads it.
  ModelCheckpoint back = ModelCheckpoint::Open(folder_ / "wide_back").value();
  std::vector<int32_t> sublayers(back.plan().sublayers.size());
  std::iota(sublayers.begin(), sublayers.end(), 0);
  ArenaLayout layout;
  ParameterStore parameters(back.plan(), sublayers, Purpose::kInference, layout);
  const Arena arena = Arena::Allocate(layout).value();
  parameters.Bind(arena);
  ASSERT_EQ(back.ReadWeights(parameters, Stream::Cpu(1)), absl::OkStatus());
  CheckpointReader reader = CheckpointReader::Open(wide).value();
  for (int32_t p = 0; p < static_cast<int32_t>(back.plan().parameters.size()); ++p) {
    for (int64_t slice = 0; slice < SliceCount(back.plan().parameters[p]); ++slice) {
      const Vector loaded = SliceOf(parameters.WeightVector(p), slice);
      std::vector<float> stored(loaded.size);
      const SliceState state{.parameter = p, .slice = slice, .weight = Vector(stored.data(), loaded.size)};
      ASSERT_TRUE(reader.ReadSlices({&state, 1}).ok());
      EXPECT_TRUE(std::equal(stored.begin(), stored.end(), loaded.data)) << back.plan().ParameterName(p);
    }
  }
}

TEST_F(CheckpointImportTest, EachSideHasItsOwnVocabulary) {
  const Vocabulary more = *Vocabulary::FromTokens({"a", "b", "c", "d", "e"});
  ModelOptions model = TinyModel(ResidualMethod::kDeepNorm, words_, 12);
  model.target_vocabulary = more.size();
  model.sharing = EmbeddingSharing::kDecoder;
  ASSERT_TRUE(SaveModel({.model = model,
                         .vocabularies = {VocabularyFile("source.vocabulary", words_),
                                          VocabularyFile("target.vocabulary", more)}},
                        folder_ / "two")
                  .ok());
  std::ostringstream out;
  const std::string plain = folder_ / "t/model.safetensors";
  ASSERT_TRUE(ExportCheckpoint({.checkpoint = folder_ / "two", .out = plain}, out).ok());
  EXPECT_EQ(ImportCheckpoint({.source = plain, .out = folder_ / "two_back"}, out), absl::OkStatus());
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

class CheckpointVocabulariesTest : public ::testing::Test {
 protected:
  CheckpointVocabulariesTest()
      : words_(*Vocabulary::FromTokens({"a", "b", "c"})), others_(*Vocabulary::FromTokens({"b", "a", "c"})) {}

  // A checkpoint that carries `vocabularies`.
  FoundCheckpoint Checkpoint(const std::vector<Attachment>& vocabularies) const {
    const ModelOptions model = TinyModel(ResidualMethod::kDeepNorm, words_, 8);
    EXPECT_EQ(SaveModel({.model = model, .vocabularies = vocabularies}, directory_ / "run"), absl::OkStatus());
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
