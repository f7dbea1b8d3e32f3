#include "tools/checkpoint/checkpoint_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/files.h"
#include "runtime/safetensors.h"
#include "tests/support/command_runner.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/recorded_syncs.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// `hadal checkpoint ARGUMENTS…`.
CommandResult Checkpoint(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "checkpoint");
  return RunCommand(AddCheckpointCommand, arguments);
}

// What it prints on standard output, and on standard error, when it ends with `exit_code`.
std::string Output(int exit_code, const std::vector<std::string>& arguments) {
  const CommandResult result = Checkpoint(arguments);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  return result.out;
}
std::string Error(int exit_code, const std::vector<std::string>& arguments) {
  const CommandResult result = Checkpoint(arguments);
  EXPECT_EQ(result.exit_code, exit_code) << result.out;
  return result.err;
}

class CheckpointCommandTest : public testing::Test {
 protected:
  CheckpointCommandTest() : state_(SmallParameters(), 1), committer_(SmallCommitter(run_.path())) {
    directory_ = SaveStep({.step = 5});
  }
  std::string SaveStep(const SaveOptions& options) { return Save(committer_, state_, options).value().directory; }
  // Flips a bit of a weight; a second time restores it.
  void Damage(const std::string& directory) {
    const std::string path = directory + "/rank_00001.safetensors";
    const auto file = SafetensorsReader::Open(path).value();
    FlipBit(path, static_cast<size_t>(file.header_bytes()));
  }

  TemporaryDirectory run_;
  SmallState state_;
  CheckpointCommitter committer_;
  std::string directory_;
};

TEST_F(CheckpointCommandTest, LsShowsARunWithItsMarksAndItsDamage) {
  SaveStep({.step = 6, .validation_nll = 3.25, .is_best = true});
  SaveStep({.step = 7});
  std::filesystem::remove(directory_ + "/rank_00001.safetensors");
  const std::string outcome = Output(0, {"ls", run_.path()});
  EXPECT_THAT(outcome, testing::ContainsRegex("step_00000005 +DAMAGED: .*rank_00001.safetensors is missing"));
  EXPECT_THAT(outcome, testing::ContainsRegex("step_00000006 .* 3\\.2500 .*best"));
  EXPECT_THAT(outcome, testing::ContainsRegex("step_00000007 .*latest"));
  EXPECT_THAT(outcome, Not(testing::ContainsRegex("step_0000000[56][^\n]*latest")));
  EXPECT_THAT(outcome, Not(testing::ContainsRegex("step_0000000[57][^\n]*best")));
  // No score, and three ranks' files, a vocabulary, the manifest.
  EXPECT_THAT(outcome, testing::ContainsRegex("step_00000007 +6 +1\\.25 +- +[0-9]+ +5  20"));
  int64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(run_ / "checkpoints/step_00000007")) {
    bytes += file.path().filename() == "manifest.json" ? 0 : static_cast<int64_t>(file.file_size());
  }
  EXPECT_THAT(outcome, HasSubstr(" " + std::to_string(bytes) + "      5  20"));
  EXPECT_EQ(Checkpoint({"ls", run_ / "checkpoints"}).out, outcome);
  EXPECT_EQ(Output(0, {"ls", run_.path(), "--parameters"}).find(outcome + "  "), 0u) << "then the parameters";
  EXPECT_THAT(Output(0, {"ls", run_.path(), "--parameters"}), HasSubstr("\n  encoder.layers.0.fc1.weight [6, 4]\n"));
}

TEST_F(CheckpointCommandTest, TheBestOfAnotherMetricAreMarkedAndAveraged) {
  SaveStep({.step = 6, .validation_nll = 3.25, .is_best = true});
  SaveStep({.step = 7, .validation_nll = 3});
  SaveStep(
      {.step = 8, .validation_metric = "bleu 13a of 4", .best = {{.step = 6, .score = 31}, {.step = 5, .score = 30}}});
  const std::string outcome = Output(0, {"ls", run_.path()});
  EXPECT_THAT(outcome, testing::ContainsRegex("step_00000006 .*  best \\(bleu 31\\.00\\)"));
  EXPECT_THAT(outcome, testing::ContainsRegex("step_00000005 .*  best 2 \\(bleu 30\\.00\\)"));
  EXPECT_THAT(outcome, Not(testing::ContainsRegex("step_0000000[78][^\n]*best")));
  const std::string average = Output(0, {"average", run_.path(), "--best", "2", "--out", run_ / "mean"});
  EXPECT_THAT(average, testing::ContainsRegex("step_00000005\n.*step_00000006\n$"));
}

TEST_F(CheckpointCommandTest, LsShowsOneCheckpoint) {
  const std::string outcome = Output(0, {"ls", "--parameters", run_ / "checkpoints/latest"});
  EXPECT_THAT(outcome, HasSubstr("step 5, update 4, 1.25 epochs, 0 target tokens, seed 18446744073709551615\n"));
  EXPECT_THAT(outcome, HasSubstr("\n  5 parameters of 1048869 elements, with Adam's moments; "));
  EXPECT_THAT(outcome, HasSubstr("rank_00002.safetensors"));
  EXPECT_THAT(outcome, HasSubstr("encoder.layers.0.fc1.weight [6, 4]"));
  EXPECT_THAT(outcome, HasSubstr("encoder.layers.0.fc1.bias [6]\n"));
  CheckpointManifest manifest = CheckpointReader::Open(directory_)->manifest();
  manifest.attempt = "one\x1b[2J";
  manifest.muon = true;
  SetContents(directory_ + "/manifest.json", manifest.ToString());
  EXPECT_THAT(Output(0, {"ls", directory_}), testing::AllOf(HasSubstr("by attempt one\\x1b[2J\n"),
                                                            HasSubstr("with Muon's momentum and Adam's moments;")));
}

TEST_F(CheckpointCommandTest, WhatIsNoCheckpointIsAnError) {
  TemporaryDirectory empty;
  for (const char* command : {"ls", "verify"}) {
    EXPECT_THAT(Error(2, {command, empty.path()}), HasSubstr("neither a checkpoint"));
  }
  std::filesystem::create_directory(empty / "checkpoints");
  EXPECT_EQ(Output(0, {"ls", empty.path()}), "no checkpoints in " + (empty / "checkpoints") + "\n");
  EXPECT_THAT(Error(2, {"verify", empty.path()}), HasSubstr("no checkpoints in " + (empty / "checkpoints")));
  EXPECT_EQ(Checkpoint({"ls"}).exit_code, 2);
  EXPECT_EQ(Checkpoint({}).exit_code, 2);
  EXPECT_EQ(Checkpoint({"frobnicate"}).exit_code, 2);
}

TEST_F(CheckpointCommandTest, VerifyTellsGoodFromDamaged) {
  EXPECT_EQ(Checkpoint({"verify", directory_}).exit_code, 0);
  const std::string second = SaveStep({.step = 6});
  EXPECT_EQ(Checkpoint({"verify", run_.path()}).exit_code, 0);
  Damage(directory_);
  EXPECT_THAT(Output(3, {"verify", directory_}), HasSubstr("is damaged: its CRC32C"));
  const CommandResult all = Checkpoint({"verify", run_.path()});
  EXPECT_EQ(all.exit_code, 3);
  EXPECT_THAT(all.out, HasSubstr("ok       " + second));
  EXPECT_THAT(all.err, HasSubstr("1 of 2 checkpoints are damaged"));
  std::filesystem::remove(directory_ + "/manifest.json");
  EXPECT_EQ(Checkpoint({"verify", directory_}).exit_code, 3);
}

TEST_F(CheckpointCommandTest, DiffSaysIdenticalAcrossLayouts) {
  const std::string other = SaveStep({.step = 6, .ranks = 1});
  const std::string outcome = Output(0, {"diff", directory_, other});
  EXPECT_THAT(outcome, HasSubstr("identical: 5 parameters"));
  EXPECT_THAT(outcome, HasSubstr("note: A is of step 5"));
  EXPECT_THAT(Checkpoint({"diff", directory_, directory_}).out, Not(HasSubstr("note")));
  CheckpointManifest manifest = CheckpointReader::Open(other)->manifest();
  manifest.muon = true;
  SetContents(other + "/manifest.json", manifest.ToString());
  EXPECT_THAT(Output(1, {"diff", directory_, other}), HasSubstr("B has Muon's momentum, the other Adam's moments;"));
}

TEST_F(CheckpointCommandTest, DiffFindsOneBitInEachKindOfState) {
  for (const StateKind kind : kStateKinds) {
    float& value = state_.values(1, kind)[7];
    const float kept = value;
    value = std::nextafter(value, 2.0f);
    const std::string other = SaveStep({.step = 6});
    const std::string outcome = Output(1, {"diff", directory_, other});
    const std::string key = StateKey(kind, "encoder.layers.0.fc1.weight", 0);
    EXPECT_THAT(outcome, HasSubstr(key.substr(0, key.size() - 2) + ": 1 of 24 elements differ"));
    EXPECT_THAT(outcome, HasSubstr("different: 1 tensors"));
    EXPECT_EQ(Checkpoint({"diff", "--weights-only", directory_, other}).exit_code, kind == StateKind::kWeight ? 1 : 0);
    value = kept;
  }
}

TEST_F(CheckpointCommandTest, DiffMeasures) {
  std::vector<float>& bias = state_.values(2, StateKind::kWeight);
  bias = {3, 0, 4, 0, 0, 0};
  const std::string a = SaveStep({.step = 6});
  bias = {3, 0, 4, 0, -0.5f, 0};
  EXPECT_THAT(Checkpoint({"diff", a, SaveStep({.step = 7})}).out,
              HasSubstr("fc1.bias: 1 of 6 elements differ, max |d| 0.5, relative 0.1\n"));
  bias = {3, 0, 4, 0, 0.5f, 0};
  EXPECT_THAT(Checkpoint({"diff", a, SaveStep({.step = 10})}).out, HasSubstr("max |d| 0.5, relative 0.1\n"));
  bias = {3, -0.0f, 4, 0, 0, 0};
  EXPECT_THAT(Checkpoint({"diff", a, SaveStep({.step = 8})}).out,
              HasSubstr("1 of 6 elements differ, max |d| 0, relative 0\n"));
  bias = {3, 0, 4, 0, 0, std::numeric_limits<float>::quiet_NaN()};
  const std::string with_nan = SaveStep({.step = 9});
  EXPECT_THAT(Checkpoint({"diff", a, with_nan}).out, HasSubstr("relative inf, 1 not finite"));
  EXPECT_EQ(Checkpoint({"diff", with_nan, with_nan}).exit_code, 0);
}

TEST_F(CheckpointCommandTest, DiffListsTheMostDifferentFirst) {
  state_.values(1, StateKind::kWeight).assign(24, 1.0f);
  state_.values(2, StateKind::kWeight).assign(6, 1.0f);
  const std::string a = SaveStep({.step = 6});
  state_.values(1, StateKind::kWeight)[0] = 1.125f;
  state_.values(2, StateKind::kWeight)[0] = 1.5f;
  const std::string b = SaveStep({.step = 7});
  const std::string one = Checkpoint({"diff", a, b, "--lines", "1"}).out;
  EXPECT_THAT(one, HasSubstr("fc1.bias: 1 of 6"));
  EXPECT_THAT(one, Not(HasSubstr("fc1.weight: 1 of 24")));
  EXPECT_THAT(one, HasSubstr("and 1 more"));
  const std::string all = Checkpoint({"diff", a, b, "--lines", "0"}).out;
  EXPECT_LT(all.find("fc1.bias: 1 of 6"), all.find("fc1.weight: 1 of 24"));
  EXPECT_THAT(all, HasSubstr("different: 2 tensors"));
}

TEST_F(CheckpointCommandTest, DiffOfADamagedCheckpointIsExitCode3) {
  const std::string other = SaveStep({.step = 6});
  Damage(other);
  EXPECT_THAT(Error(3, {"diff", directory_, other}), HasSubstr("`hadal checkpoint verify RUN_DIR`"));
}

TEST_F(CheckpointCommandTest, ExportWritesWholeTensors) {
  const std::string path = run_ / "out/model.safetensors";
  const CommandResult outcome = Checkpoint({"export", run_.path(), "--out", path});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto reader = SafetensorsReader::Open(path).value();
  ASSERT_EQ(reader.tensors().size(), SmallParameters().size());
  for (int32_t p = 0; p < static_cast<int32_t>(SmallParameters().size()); ++p) {
    const CheckpointParameter parameter = SmallParameters()[p];
    const int32_t tensor = reader.Find(parameter.name);
    ASSERT_GE(tensor, 0);
    const std::vector<int64_t> shape = reader.tensors()[tensor].shape;
    EXPECT_EQ(shape, parameter.is_vector ? std::vector<int64_t>{parameter.rows}
                                         : (std::vector<int64_t>{parameter.rows, parameter.columns}));
    std::vector<float> values(static_cast<size_t>(parameter.elements()));
    ASSERT_TRUE(reader.Read(tensor, 0, parameter.elements() * 4, values.data()).ok());
    EXPECT_TRUE(values == state_.values(p, StateKind::kWeight)) << parameter.name;
  }
  const auto settings = nlohmann::json::parse(Contents(run_ / "out/model.json"));
  EXPECT_EQ(settings["model"]["d_model"], 256);
  EXPECT_EQ(settings["inputs"], nlohmann::json::object()) << "text without tags";
  EXPECT_EQ(settings["step"], 5);
  EXPECT_EQ(settings["vocabularies"], nlohmann::json({"vocabulary.model"}));
  EXPECT_FALSE(settings.contains("validation_nll")) << "nobody measured it";
  EXPECT_EQ(Contents(run_ / "out/vocabulary.model"), std::string("bytes\0\n", 7));
  EXPECT_THAT(*ListDirectory(run_ / "out"), ElementsAre("model.json", "model.safetensors", "vocabulary.model"));
}

TEST_F(CheckpointCommandTest, ExportTakesTheBestOfARunAsTranslateDoes) {
  SaveStep({.step = 6, .validation_nll = 3.25, .is_best = true});
  SaveStep({.step = 7});
  ASSERT_EQ(Checkpoint({"export", run_.path(), "--out", run_ / "out/model.safetensors"}).exit_code, 0);
  const auto settings = nlohmann::json::parse(Contents(run_ / "out/model.json"));
  EXPECT_EQ(settings["step"], 6);
  EXPECT_EQ(settings["validation_nll"], 3.25);
  CheckpointManifest manifest = CheckpointReader::Open(directory_)->manifest();
  manifest.progress.updates_before = 100;
  SetContents(directory_ + "/manifest.json", manifest.ToString());
  ASSERT_EQ(Checkpoint({"export", directory_, "--out", run_ / "out/grown.safetensors"}).exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(Contents(run_ / "out/grown.json"))["update"], 104)
      << "by which BranchNorm's gain grows";
}

// The rows of DLCL's weights, parameters of their own, as one lower-triangular matrix.
TEST(CheckpointExportTest, JoinsTheRowsOfACombination) {
  const std::vector<CheckpointParameter> parameters = {
      {.name = "encoder.dlcl.weight.0", .rows = 1, .is_vector = true},
      {.name = "encoder.layers.0.fc1.bias", .rows = 6, .is_vector = true},
      {.name = "encoder.dlcl.weight.1", .rows = 2, .is_vector = true},
      {.name = "encoder.dlcl.weight.2", .rows = 3, .is_vector = true}};
  TemporaryDirectory run;
  SmallState state(parameters, 2);
  CheckpointCommitter committer = SmallCommitter(run.path(), {}, parameters);
  ASSERT_TRUE(Save(committer, state).ok());
  const CommandResult outcome = Checkpoint({"export", run.path(), "--out", run / "model.safetensors"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto reader = SafetensorsReader::Open(run / "model.safetensors").value();
  ASSERT_EQ(reader.tensors().size(), 2u);
  const int32_t matrix = reader.Find("encoder.dlcl.weight");
  ASSERT_GE(matrix, 0);
  EXPECT_THAT(reader.tensors()[matrix].shape, ElementsAre(3, 3));
  std::vector<float> values(9);
  ASSERT_TRUE(reader.Read(matrix, 0, 36, values.data()).ok());
  const auto row = [&](int32_t parameter) { return state.values(parameter, StateKind::kWeight); };
  EXPECT_THAT(values, ElementsAre(row(0)[0], 0, 0, row(2)[0], row(2)[1], 0, row(3)[0], row(3)[1], row(3)[2]));
  std::vector<float> bias(6);
  ASSERT_TRUE(reader.Read(reader.Find("encoder.layers.0.fc1.bias"), 0, 24, bias.data()).ok());
  EXPECT_EQ(bias, row(1));
}

TEST_F(CheckpointCommandTest, ExportReplacesNothingUnasked) {
  const std::string path = run_ / "model.safetensors";
  SetContents(path, "precious");
  EXPECT_EQ(Checkpoint({"export", directory_, "--out", path}).exit_code, 2);
  EXPECT_EQ(Contents(path), "precious");
  EXPECT_EQ(Checkpoint({"export", directory_, "--out", path, "--force"}).exit_code, 0);
  EXPECT_TRUE(SafetensorsReader::Open(path).ok());
  EXPECT_EQ(Checkpoint({"export", directory_, "--out", run_ / "second.safetensors"}).exit_code, 0);
  SetContents(run_ / "vocabulary.model", "another export's");
  EXPECT_THAT(Error(2, {"export", directory_, "--out", path, "--force"}),
              HasSubstr("vocabulary.model is not this model's vocabulary"));
  EXPECT_EQ(Contents(run_ / "vocabulary.model"), "another export's");
  EXPECT_EQ(Checkpoint({"export", directory_, "--out", run_ / "model.bin"}).exit_code, 2);
}

TEST_F(CheckpointCommandTest, ExportWritesNoFileThatIsNoVocabulary) {
  for (const std::string name : {".profile", "sitecustomize.py", ".model"}) {
    CheckpointManifest manifest = CheckpointReader::Open(directory_)->manifest();
    std::filesystem::rename(directory_ + "/" + manifest.attachments[0].name, directory_ + "/" + name);
    manifest.attachments[0].name = name;
    SetContents(directory_ + "/manifest.json", manifest.ToString());
    EXPECT_THAT(Error(3, {"export", directory_, "--out", run_ / "out/model.safetensors"}),
                HasSubstr("carries " + name + ", which is no vocabulary"));
    EXPECT_FALSE(PathExists(run_ / "out"));
  }
  CheckpointManifest manifest = CheckpointReader::Open(directory_)->manifest();
  std::filesystem::rename(directory_ + "/.model", directory_ + "/tokenizer.json");
  manifest.attachments[0].name = "tokenizer.json";
  SetContents(directory_ + "/manifest.json", manifest.ToString());
  EXPECT_THAT(Error(2, {"export", directory_, "--out", run_ / "out/tokenizer.safetensors"}),
              HasSubstr("its settings would be tokenizer.json, which is the model's vocabulary"));
}

TEST_F(CheckpointCommandTest, ARunWithoutAWholeCheckpointSaysWhatIsLeftToDo) {
  std::filesystem::remove(directory_ + "/rank_00001.safetensors");
  EXPECT_THAT(Error(3, {"export", run_.path(), "--out", run_ / "model.safetensors"}),
              HasSubstr("rank_00001.safetensors is missing\n  Put a good copy of one in its place"));
  EXPECT_EQ(Checkpoint({"ls", run_.path(), "--parameters"}).exit_code, 3) << "whose parameters?";
}

TEST_F(CheckpointCommandTest, AFailedExportLeavesNothing) {
  Damage(directory_);
  EXPECT_THAT(Error(3, {"export", directory_, "--out", run_ / "out/model.safetensors"}),
              HasSubstr("`hadal checkpoint verify RUN_DIR`"));
  EXPECT_TRUE(ListDirectory(run_ / "out")->empty());
  Damage(directory_);
  const FileSizeLimit limit(100'000);
  EXPECT_THAT(Error(1, {"export", directory_, "--out", run_ / "out/model.safetensors"}),
              HasSubstr("cannot write " + (run_ / "out/model.safetensors") + ": "));
  EXPECT_TRUE(ListDirectory(run_ / "out")->empty());
}

// Four checkpoints whose bias is 1, 2, 4, 8 at steps 10, 20, 30, 40; nll falls, then rises.
class CheckpointAverageTest : public CheckpointCommandTest {
 protected:
  CheckpointAverageTest() {
    const double nll[] = {4, 2, 1, 3};
    for (int i = 0; i < 4; ++i) {
      state_.values(2, StateKind::kWeight).assign(6, static_cast<float>(1 << i));
      steps_.push_back(SaveStep({.step = 10 * (i + 1), .validation_nll = nll[i]}));
    }
  }
  float Bias(const std::string& directory) {
    auto reader = CheckpointReader::Open(directory).value();
    std::vector<float> values(6);
    SliceState state;
    state.parameter = 2;
    state.weight = Vector(values.data(), 6);
    EXPECT_TRUE(reader.ReadSlices({&state, 1}).ok());
    return values[5];
  }
  std::vector<std::string> steps_;
};

TEST_F(CheckpointAverageTest, AveragesGivenCheckpoints) {
  const std::string out = run_ / "mean";
  const CommandResult outcome = Checkpoint({"average", steps_[0], steps_[3], steps_[1], "--out", out + "/"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(Bias(out), static_cast<float>((1.0 + 8.0 + 2.0) / 3.0));
  EXPECT_EQ(Checkpoint({"verify", out}).exit_code, 0);
  const auto reader = CheckpointReader::Open(out);
  EXPECT_FALSE(reader->manifest().has_moments);
  EXPECT_EQ(reader->manifest().progress.step, 40);
  EXPECT_EQ(reader->manifest().progress.validation_nll, std::numeric_limits<double>::infinity())
      << "nobody measured it";
  EXPECT_EQ(reader->manifest().attachments.size(), 1u);
  EXPECT_EQ(Checkpoint({"export", out, "--out", run_ / "m/mean.safetensors"}).exit_code, 0);
  EXPECT_THAT(Error(2, {"average", steps_[0], "--out", out}), HasSubstr("already exists"));
  EXPECT_EQ(Checkpoint({"average", out, steps_[3], "--out", run_ / "again"}).exit_code, 0) << "an attempt of its own";
}

TEST_F(CheckpointAverageTest, ModelsOfDifferentVocabulariesOrParametersHaveNoAverage) {
  std::vector<CheckpointParameter> parameters = SmallParameters();
  for (const bool of_vocabulary : {true, false}) {
    if (!of_vocabulary) parameters[1].name = "encoder.layers.0.fc2.weight";
    const TemporaryDirectory elsewhere;
    SmallState state(parameters, 3);
    CheckpointCommitter committer = SmallCommitter(elsewhere.path(), {}, parameters);
    SaveOptions options;
    if (of_vocabulary) options.vocabulary = "another";
    const auto other = Save(committer, state, options).value();
    EXPECT_THAT(Error(2, {"average", steps_[0], other.directory, "--out", run_ / "mean"}),
                HasSubstr(other.directory + (of_vocabulary ? ": its vocabulary differs from that of " + steps_[0]
                                                           : ": the checkpoint is of another model")));
    EXPECT_FALSE(PathExists(run_ / "mean"));
  }
  const TemporaryDirectory of_heads;  // equal parameters, which another number of heads reads
  CheckpointCommitter committer({.run_directory = of_heads.path(),
                                 .attempt = NewCheckpointAttempt(),
                                 .plan_hash = 1,
                                 .parameters = SmallParameters()});
  ASSERT_EQ(committer.Claim(), absl::OkStatus());
  SmallState state(SmallParameters(), 3);
  const auto other = Save(committer, state, {}).value();
  EXPECT_THAT(Error(2, {"average", steps_[0], other.directory, "--out", run_ / "mean"}),
              HasSubstr(other.directory + ": its model differs from that of"));
  const auto set_inputs = [](const std::string& directory, const InputKind& inputs) {
    CheckpointManifest manifest = CheckpointReader::Open(directory)->manifest();
    manifest.inputs = inputs;
    SetContents(directory + "/manifest.json", manifest.ToString());
  };
  set_inputs(steps_[0], {.tags = "none"});
  set_inputs(steps_[1], {.tags = "deepnet"});
  set_inputs(steps_[2], {.tags = "none", .frame_width = 80});
  EXPECT_THAT(Error(2, {"average", steps_[0], steps_[1], "--out", run_ / "mean"}), HasSubstr("the preset deepnet"));
  EXPECT_THAT(Error(2, {"average", steps_[0], steps_[2], "--out", run_ / "mean"}), HasSubstr("80 filters"));
}

TEST_F(CheckpointAverageTest, WhatIsWrittenIsOnTheDevice) {
  const RecordedSyncs syncs;
  ASSERT_EQ(Checkpoint({"average", steps_[0], steps_[1], "--out", run_ / "mean"}).exit_code, 0);
  ASSERT_FALSE(syncs.paths().empty());
  EXPECT_EQ(syncs.paths().back(), run_.path()) << "the name of the average";
  ASSERT_EQ(Checkpoint({"export", steps_[0], "--out", run_ / "out/model.safetensors"}).exit_code, 0);
  EXPECT_EQ(syncs.paths().back(), run_ / "out");
}

TEST_F(CheckpointAverageTest, AveragesTheLastAndTheBest) {
  ASSERT_EQ(Checkpoint({"average", run_.path(), "--last", "2", "--out", run_ / "last"}).exit_code, 0);
  EXPECT_EQ(Bias(run_ / "last"), 6);
  const std::string best = Output(0, {"average", run_.path(), "--best", "3", "--out", run_ / "best"});
  EXPECT_EQ(Bias(run_ / "best"), static_cast<float>(14.0 / 3.0));
  EXPECT_THAT(best, HasSubstr("\n  " + steps_[1] + "\n  " + steps_[2] + "\n  " + steps_[3] + "\n")) << "by step";
  EXPECT_THAT(Error(2, {"average", run_.path(), "--best", "5", "--out", run_ / "too_many"}),
              HasSubstr("4 readable checkpoints with a score of the present validation set, 5 are needed"));
  for (size_t i = 0; i < steps_.size(); ++i) {
    CheckpointManifest manifest = CheckpointReader::Open(steps_[i])->manifest();
    manifest.progress.validation_data = {.samples = 1, .crc32c = i < 2 ? 1u : 2u};
    SetContents(steps_[i] + "/manifest.json", manifest.ToString());
  }
  EXPECT_THAT(Error(2, {"average", run_.path(), "--best", "3", "--out", run_ / "x"}), HasSubstr("has 2 readable"))
      << "the others' scores are another validation set's";
  EXPECT_EQ(Checkpoint({"average", run_.path(), "--best", "1", "--last", "1", "--out", run_ / "x"}).exit_code, 2);
  EXPECT_THAT(Error(2, {"average", steps_[0], steps_[1], "--last", "1", "--out", run_ / "x"}),
              HasSubstr("--last and --best need one run directory"));
  EXPECT_THAT(Error(2, {"average", run_.path(), "--out", run_ / "x"}),
              HasSubstr(run_.path() + " is a run directory; average its newest with --last N"));
}

TEST_F(CheckpointAverageTest, OneCheckpointDoesNotCountTwice) {
  const std::string latest = run_ / "checkpoints/latest";
  EXPECT_THAT(Error(2, {"average", steps_[0], steps_[3], latest, "--out", run_ / "mean"}),
              HasSubstr(steps_[3] + " and " + latest + " are the same checkpoint, of step 40"));
  EXPECT_FALSE(PathExists(run_ / "mean"));
  const TemporaryDirectory elsewhere;
  CheckpointCommitter committer = SmallCommitter(elsewhere.path());
  const std::string other = Save(committer, state_, {.step = 40}).value().directory;
  EXPECT_EQ(Checkpoint({"average", steps_[3], other, "--out", run_ / "mean"}).exit_code, 0) << "of another run";
}

TEST_F(CheckpointAverageTest, RunsWithDifferentSeedsAreWarnedOf) {
  EXPECT_THAT(Output(0, {"average", steps_[0], steps_[1], "--out", run_ / "same"}), Not(HasSubstr("warning")));
  CheckpointManifest manifest = CheckpointReader::Open(steps_[0])->manifest();
  manifest.progress.seed = 7;
  SetContents(steps_[0] + "/manifest.json", manifest.ToString());
  EXPECT_THAT(Output(0, {"average", steps_[0], steps_[1], "--out", run_ / "mean"}),
              HasSubstr("warning: these runs have different seeds"));
}

TEST_F(CheckpointAverageTest, SaysWhichOfARunItLeavesOut) {
  std::filesystem::remove(steps_[3] + "/rank_00001.safetensors");
  const std::string outcome = Output(0, {"average", run_.path(), "--last", "2", "--out", run_ / "last"});
  EXPECT_EQ(Bias(run_ / "last"), 3);
  EXPECT_THAT(outcome, HasSubstr("skipped " + steps_[3] + ": " + steps_[3] + "/rank_00001.safetensors is missing"));
}

TEST_F(CheckpointAverageTest, OneCheckpointAveragesToItself) {
  ASSERT_EQ(Checkpoint({"average", steps_[3], "--out", run_ / "one"}).exit_code, 0);
  EXPECT_EQ(Checkpoint({"diff", "--weights-only", steps_[3], run_ / "one"}).exit_code, 0);
  EXPECT_THAT(Output(1, {"diff", steps_[3], run_ / "one"}), HasSubstr("B has weights only"));
}

TEST_F(CheckpointAverageTest, DamageLeavesNothingBehind) {
  Damage(steps_[1]);
  EXPECT_THAT(Error(3, {"average", steps_[0], steps_[1], "--out", run_ / "mean"}),
              HasSubstr("`hadal checkpoint verify RUN_DIR`"));
  EXPECT_THAT(*ListDirectory(run_.path()), ElementsAre("checkpoints"));
  const FileSizeLimit limit(100'000);
  const CommandResult outcome = Checkpoint({"average", steps_[0], "--out", run_ / "mean"});
  EXPECT_THAT(outcome.err, HasSubstr("cannot write " + (run_ / "mean/")));
  EXPECT_THAT(outcome.err, Not(HasSubstr(".tmp.")));
}

}  // namespace
}  // namespace hadal
