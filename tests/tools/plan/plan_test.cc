// `hadal plan` as its users steer it: what they set is kept, what is listed is what a run takes, and `hadal simulate`
// replays what is printed.
#include "tools/commands.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/support/command_runner.h"
#include "tests/support/temporary_directory.h"
#include "tools/plan/simulate.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string Config(const std::string& name) { return absl::StrCat(HADAL_CONFIGS, "/", name, ".textproto"); }

CommandResult Plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"plan", "--vocabulary", "8000"});
  return RunCommand(AddPlanCommand, arguments);
}

Json PlanJson(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const CommandResult result = Plan(std::move(arguments));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
}

double SimulatedStep(const Json& plan) {
  const TemporaryDirectory directory;
  SetContents(directory / "plan.json", plan.dump());
  const CommandResult result =
      RunCommand(AddSimulateCommand, {"simulate", "--plan", directory / "plan.json", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.exit_code == 0 ? Json::parse(result.out)["step_seconds"].get<double>() : 0;
}

std::vector<int64_t> DeviceBytes(const Json& plan) {
  std::vector<int64_t> bytes;
  for (const Json& rank : plan["memory"]) bytes.push_back(rank["device_bytes"].get<int64_t>());
  return bytes;
}

// A question about a machine, drawn at random: a model, a machine, and what the user sets.
struct Question {
  std::vector<std::string> run, machine;
  std::vector<std::pair<std::string, Json>> kept;  // keys of the plan, with the values that they must have
  double memory_gib = 0;
};

Question Draw(std::mt19937& random) {
  const auto one_of = [&random](auto values) { return values[random() % values.size()]; };
  Question question;
  const auto set = [&](const std::string& field, const auto& value) {
    question.run.insert(question.run.end(), {"--set", absl::StrCat(field, "=", value)});
  };
  using Names = std::vector<std::string>;
  question.run = {Config("base"), Config(one_of(Names{"size/512", "size/128"})),
                  Config(one_of(Names{"depth/18", "depth/50", "depth/100"})),
                  Config(one_of(Names{"method/deepnorm", "method/pre_ln", "method/b2t"}))};
  set("batch.micro_batches", one_of(std::vector<int>{16, 32, 64}));
  set("batch.source_tokens", 2048);
  set("batch.target_tokens", 2048);
  const bool a100 = random() % 2 == 0;
  const int nodes = 1 + static_cast<int>(random() % 2);
  question.memory_gib = a100 ? 76 : 127.3;
  question.machine = {"--machine", Config(a100 ? "machines/a100_80g_8" : "machines/h200_8"),
                      "--nodes",   absl::StrCat(nodes),
                      "--top",     "2"};
  if (const int replicas = one_of(std::vector<int>{0, 1, 2, 4, 8}); replicas > 0) {
    set("pipeline.replicas", replicas);
    question.kept.emplace_back("replicas", replicas);
  } else if (random() % 2 == 0) {
    set("pipeline.stages", 4);
    question.kept.emplace_back("replicas", 2 * nodes);
  }
  if (random() % 3 == 0) {
    set("pipeline.recompute_every", 3);
    question.kept.emplace_back("recompute_every", 3);
  }
  if (random() % 3 == 0) {
    const std::string schedule = one_of(Names{"gpipe", "1f1b"});
    set("pipeline.schedule", schedule);
    question.kept.emplace_back("schedule", schedule);
  }
  if (random() % 4 == 0) set("pipeline.optimizer_sharding", "none");
  if (random() % 4 == 0) set("pipeline.placement", "stages_together");
  return question;
}

std::vector<std::string> Joined(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Whatever the grid, unless every rank is asked for; JSON has every rank.
TEST(Plan, OfManyRanksFitsAScreen) {
  for (const int stages : {8, 512}) {
    std::vector<std::string> run = {Config("base"),
                                    Config("size/64"),
                                    Config("depth/500"),
                                    "--gflops",
                                    "50",
                                    "--nodes",
                                    "64",
                                    "--grace-seconds",
                                    "7",
                                    "--set",
                                    "batch.micro_batches=64",
                                    "--set",
                                    "pipeline.recompute_every=4",
                                    "--set",
                                    absl::StrCat("pipeline.stages=", stages),
                                    "--set",
                                    absl::StrCat("pipeline.replicas=", 512 / stages)};
    for (const std::string device : {"cpu", "cuda"}) {
      SCOPED_TRACE(absl::StrCat(stages, " stages, ", device));
      const std::vector<std::string> on_device = Joined(run, {"--device", device});
      const CommandResult few = Plan(on_device);
      EXPECT_LE(std::ranges::count(few.out, '\n'), 40) << few.out;
      EXPECT_GT(std::ranges::count(Plan(Joined(on_device, {"--all-ranks"})).out, '\n'), 512 + stages);
    }
    const Json json = PlanJson(run);
    EXPECT_EQ(json["memory"].size(), 512u);
    EXPECT_EQ(json["cluster"]["ranks_per_node"], 8);
    EXPECT_EQ(json["cluster"]["grace_seconds"], 7);
    int64_t most = 0;
    for (const Json& rank : json["memory"]) most = std::max(most, rank["arena_bytes"].get<int64_t>());
    EXPECT_THAT(Plan(run).out, HasSubstr(absl::StrCat("(", most, " bytes)"))) << "the fullest rank is shown";
  }
}

TEST(Plan, OfAMachineHasTheBytesOfItsLayoutAndTheStepOfItsReplay) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 12; ++trial) {
    const Question question = Draw(random);
    SCOPED_TRACE(absl::StrJoin(Joined(question.run, question.machine), " "));
    const Json searched = PlanJson(Joined(question.run, question.machine));
    ASSERT_TRUE(searched.is_object());
    EXPECT_EQ(searched["cluster"]["ranks_per_node"], 8);
    for (const auto& [key, value] : question.kept) EXPECT_EQ(searched[key], value) << key;
    for (const Json& layout : searched["search"]["layouts"]) {
      EXPECT_LE(layout["fullest_bytes"].get<int64_t>(), question.memory_gib * (1 << 30));
      const std::vector<std::string> pasted = absl::StrSplit(layout["arguments"].get<std::string>(), ' ');
      const Json exact = PlanJson(Joined(Joined(question.run, pasted), {"--device", "cuda"}));
      const std::vector<int64_t> bytes = DeviceBytes(exact);
      EXPECT_EQ(layout["fullest_bytes"].get<int64_t>(), *std::ranges::max_element(bytes));
      if (layout == searched["search"]["layouts"][0]) {
        EXPECT_EQ(DeviceBytes(searched), bytes);
      }
    }
    const double step = searched["step_seconds"].get<double>();
    EXPECT_NEAR(SimulatedStep(searched), step, 1e-9 * step);
  }
}

TEST(Plan, OfGivenRanksIsReplayedReplicaByReplica) {
  for (const char* replicas : {"1", "2", "3"}) {  // 4 micro-batches: of 3 replicas the first has 2
    const Json plan = PlanJson({Config("base"), "--gflops", "1000", "--ranks", "6", "--set",
                                absl::StrCat("pipeline.replicas=", replicas), "--set", "pipeline.outstanding_sends=1"});
    const double step = plan["step_seconds"].get<double>();
    EXPECT_NEAR(SimulatedStep(plan), step, 1e-9 * step) << replicas;
  }
}

// Every sublayer of the default model takes 1 ms forward and 2 ms back.
TEST(Plan, TakesItsCostsFromAProfile) {
  const TemporaryDirectory directory;
  std::string profile = R"(processor: "a processor" gflops: 100
      model { d_model: 512 d_ff: 2048 heads: 8 source_vocabulary: 8000 target_vocabulary: 8000 sublayers: 33
              parameters: 1 }
      capacities { source_tokens: 1024 target_tokens: 1024 source_rows: 1000 target_rows: 1000
  )";
  for (const char* kind : {"source_embedding", "encoder_self_attention", "encoder_feed_forward", "target_embedding",
                           "decoder_self_attention", "cross_attention", "decoder_feed_forward", "output_head"}) {
    absl::StrAppend(
        &profile, "sublayers { kind: \"", kind,
        "\" forward_ms: 1 backward_ms: 2 recomputed_forward_ms: 3 recompute_ms: 4 recomputed_backward_ms: 6 }\n");
  }
  SetContents(directory / "profile.textproto", profile + "}\n");
  SetContents(directory / "mine.textproto", "batch { micro_batches: 8 } pipeline { threads: 1 }\n");
  const Json plan =
      PlanJson({directory / "mine.textproto", "--profile", directory / "profile.textproto", "--ranks", "1"});
  EXPECT_NEAR(plan.value("step_seconds", 0.0), 8 * 33 * 0.003, 1e-9);
  const Json repeated = PlanJson({directory / "mine.textproto", "--profile", directory / "profile.textproto", "--ranks",
                                  "1", "--set", "pipeline.recompute_every=1"});
  EXPECT_NEAR(repeated.value("step_seconds", 0.0), 8 * (30 * 0.013 + 3 * 0.003), 1e-9) << "embeddings and head are not";
  const CommandResult of_cpus = Plan({directory / "mine.textproto", "--profile", directory / "profile.textproto",
                                      "--machine", Config("machines/h200_8")});
  EXPECT_EQ(of_cpus.exit_code, 2);
  EXPECT_THAT(of_cpus.err, HasSubstr("a profile has the times of CPUs"));
}

TEST(Plan, WithoutASpeedSaysHowToGiveOne) {
  const CommandResult plan = Plan({Config("base"), "--device", "cuda", "--ranks", "2", "--json"});
  EXPECT_EQ(plan.exit_code, 0);
  EXPECT_THAT(Json::parse(plan.out)["note"].get<std::string>(), AllOf(HasSubstr("--gflops"), HasSubstr("--machine")));
  const auto options = SimulateOptionsFromPlan(plan.out, "plan.json");
  EXPECT_THAT(std::string(options.status().message()), AllOf(HasSubstr("plan.json"), HasSubstr("--gflops")));
}

TEST(Plan, RefusesWhatADevicesPrecisionCannotHold) {
  const CommandResult plan = Plan({Config("base"), Config("method/mix_ln"), "--device", "cuda", "--ranks", "2"});
  EXPECT_NE(plan.exit_code, 0);
  EXPECT_THAT(plan.err, HasSubstr("post_norm_share"));
}

TEST(Plan, NamesTheSettingThatIsWrongAndTheFileWithoutEffect) {
  const TemporaryDirectory directory;
  SetContents(directory / "one.textproto", "model { heads: 4 }\n");
  SetContents(directory / "two.textproto", "model { heads: 7 }\nstop { steps: 9 }\n");
  const CommandResult plan = Plan({directory / "one.textproto", directory / "two.textproto", "--gflops", "50"});
  EXPECT_EQ(plan.exit_code, 2);
  EXPECT_THAT(plan.err, HasSubstr("\n  " + (directory / "two.textproto") + ":1:9: model.heads = 7"));
  const CommandResult right =
      Plan({directory / "one.textproto", directory / "two.textproto", "--gflops", "50", "--set", "model.heads=8",
            "--set", "model.encoder_layers=1", "--set", "model.decoder_layers=1"});
  EXPECT_THAT(right.err, HasSubstr("warning: " + (directory / "one.textproto") + " has no effect"));
}

class PlanForAMachine : public ::testing::Test {
 protected:
  // A machine whose devices have `gib` for buffers.
  CommandResult Refused(double gib, const std::vector<std::string>& set) {
    SetContents(directory_ / "machine.textproto",
                absl::StrCat("devices_per_node: 4 precision: \"bf16\" reserved_gib: 4 memory_gib: ", 4 + gib,
                             " bf16 { peak_tflops: 100 } memory_gb_per_second: 1000\n"));
    std::vector<std::string> arguments = {Config("base"), Config("depth/100"), "--machine",
                                          directory_ / "machine.textproto"};
    for (const std::string& field : set) arguments.insert(arguments.end(), {"--set", field});
    return Plan(arguments);
  }

  const TemporaryDirectory directory_;
};

TEST_F(PlanForAMachine, RefusesWhatIsSetByNameAndSaysWhatWouldDo) {
  const CommandResult large = Refused(5, {"pipeline.stages=4", "pipeline.recompute_every=0", "batch.micro_batches=8"});
  EXPECT_EQ(large.exit_code, 1) << large.out;
  EXPECT_THAT(large.err, AllOf(HasSubstr("with pipeline.stages = 4, pipeline.recompute_every = 0, batch.micro_batches"),
                               HasSubstr("The nearest: 4 stages x 1 replicas"), HasSubstr("of 5.00 GiB"),
                               HasSubstr("A layout fits without pipeline.recompute_every = 0 (4 stages x 1 replicas")));
  EXPECT_THAT(large.err, ::testing::Not(HasSubstr("without pipeline.stages")));
  const CommandResult uneven = Refused(100, {"pipeline.replicas=3"});
  EXPECT_EQ(uneven.exit_code, 2);
  EXPECT_THAT(uneven.err, AllOf(HasSubstr("4 devices with pipeline.replicas = 3"),
                                HasSubstr("A layout fits without pipeline.replicas = 3")));
  const CommandResult precision = Refused(100, {"precision=fp32"});
  EXPECT_EQ(precision.exit_code, 2);
  EXPECT_THAT(precision.err, HasSubstr("precision"));
}

TEST_F(PlanForAMachine, KeepsWhatAFileSets) {
  SetContents(directory_ / "mine.textproto", "pipeline { stages: 2 schedule: \"gpipe\" }\n");
  const Json plan = PlanJson({Config("base"), directory_ / "mine.textproto", "--machine", Config("machines/h200_8")});
  EXPECT_EQ(plan["replicas"], 4);
  for (const Json& layout : plan["search"]["layouts"]) EXPECT_EQ(layout["schedule"], "gpipe");
  EXPECT_EQ(plan["search"]["kept"], "pipeline.stages = 2, pipeline.schedule = gpipe");
}

TEST_F(PlanForAMachine, RefusesOptionsThatItWouldNotFollow) {
  for (const char* option : {"--ranks", "--gflops"}) {
    EXPECT_EQ(Plan({Config("base"), "--machine", Config("machines/h200_8"), option, "2"}).exit_code, 2) << option;
  }
}

}  // namespace
}  // namespace hadal
