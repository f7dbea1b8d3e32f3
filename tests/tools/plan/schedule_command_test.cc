#include "tools/plan/simulate.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/files.h"
#include "tests/support/command_runner.h"
#include "tests/support/temporary_directory.h"
#include "tools/plan/schedule_command.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

SimulateOptions Equal(ScheduleKind kind, const ScheduleShape& shape) {
  SimulateOptions options{.kind = kind, .shape = shape};
  options.forward_seconds.assign(shape.global_chunks(), 1);
  options.backward_seconds.assign(shape.global_chunks(), 2);
  return options;
}

Simulation MustSimulate(const SimulateOptions& options) { return Simulate(options).value(); }

TEST(Simulate, TwoThousandRanks) {
  const Simulation simulation = MustSimulate(Equal(ScheduleKind::k1F1B, {2048, 1, 64}));
  EXPECT_EQ(simulation.step_seconds, (64 + 2047) * 3.0);
  const std::string text = SimulationToText(simulation);
  EXPECT_THAT(text, AllOf(HasSubstr("rank    0  F"), HasSubstr("rank 2047"), HasSubstr("16 of 2048 ranks drawn")));
  const nlohmann::ordered_json timeline = TimelineToJson(simulation);
  EXPECT_EQ(timeline["kinds"], nlohmann::ordered_json({"forward", "backward"}));
  EXPECT_EQ(timeline["rows"].size(), 2048u);
  EXPECT_EQ(timeline["rows"].back()["name"], "rank 2047");
  EXPECT_EQ(timeline["rows"].back()["spans"].size(), 128u);
  EXPECT_EQ(timeline["rows"].back()["spans"][0][3], "F0");
  EXPECT_EQ(timeline["end_seconds"], simulation.step_seconds);
}

TEST(Simulate, ASlowRankIsTheBoundAndTheImbalance) {
  SimulateOptions options = Equal(ScheduleKind::k1F1B, {4, 1, 16});
  options.slow_ranks = {{.rank = 2, .factor = 2}};
  const Simulation simulation = MustSimulate(options);
  EXPECT_EQ(simulation.busiest_rank, 2);
  EXPECT_EQ(simulation.bound_seconds, 16 * 6);
  EXPECT_GE(simulation.step_seconds, 16 * 6 + 2 * 3);  // and around it one pass of the ranks before it
  EXPECT_GT(simulation.result.breakdown.imbalance_seconds, 0);
  EXPECT_THAT(SimulationToText(simulation), Not(HasSubstr("the traced step")));
  EXPECT_NEAR(simulation.result.breakdown.makespan_seconds(), simulation.step_seconds, 1e-9);
}

// Of a step that took half as long in the run.
TEST(Simulate, IsComparedWithTheFormulaAndTheTrace) {
  SimulateOptions options = Equal(ScheduleKind::k1F1B, {2, 1, 4});
  options.traced_seconds = MustSimulate(options).step_seconds / 2;
  EXPECT_THAT(SimulationToText(MustSimulate(options)),
              AllOf(HasSubstr("the formula says 20.0% of the makespan"),
                    HasSubstr("the traced step took 7500.000 ms: the replay differs by +100.0%\n")));
}

TEST(Simulate, LinksBetweenNodesAreTheLimitedOnes) {
  SimulateOptions options = Equal(ScheduleKind::k1F1B, {4, 1, 8});
  options.message_bytes = {8e9, 8e9, 8e9};
  options.ranks_per_node = 2;
  options.node_link = {.bytes_per_second = 1e9, .latency_seconds = 0.5};
  const Simulation simulation = MustSimulate(options);
  const std::vector<double>& busy = simulation.result.replay.link_busy_seconds;
  EXPECT_EQ(busy[2 * 0 + 0], 0);      // 0 → 1, within a node
  EXPECT_EQ(busy[2 * 1 + 0], 8 * 8);  // 1 → 2
  EXPECT_EQ(busy[2 * 2 + 1], 8 * 8);  // 2 → 1, gradients
  EXPECT_GT(simulation.result.breakdown.link_seconds, 0);
  options.pipelines_per_node = 2;
  EXPECT_EQ(MustSimulate(options).result.replay.link_busy_seconds[2], 2 * 8 * 8);
  options.node_link = {};
  EXPECT_EQ(MustSimulate(options).result.breakdown.link_seconds, 0);
}

TEST(Simulate, PartsSumToTheStep) {
  SimulateOptions options = Equal(ScheduleKind::kInterleaved1F1B, {3, 2, 7});
  options.slow_ranks = {{1, 1.5}, {0, 1.1}};
  options.message_bytes.assign(5, 1e6);
  options.link = {.bytes_per_second = 1e6, .latency_seconds = 0.25};
  options.tail_seconds = 2;
  const auto json = nlohmann::json::parse(SimulationToJson(MustSimulate(options)));
  double sum = 0;
  for (const char* part : {"compute", "bubble", "imbalance", "link", "tail"}) {
    sum += json[absl::StrCat(part, "_seconds")].get<double>();
  }
  EXPECT_NEAR(sum, json["step_seconds"].get<double>(), 1e-9);
  EXPECT_FALSE(json.contains("formula_bubble_share"));  // 3 does not divide 7
}

TEST(Simulate, RefusesWhatCannotBe) {
  const auto message = [](const SimulateOptions& options) { return std::string(Simulate(options).status().message()); };
  SimulateOptions options = Equal(ScheduleKind::k1F1B, {2, 1, 2});
  options.slow_ranks = {{.rank = 2, .factor = 2}};
  EXPECT_THAT(message(options), HasSubstr("slow rank 2"));
  options = Equal(ScheduleKind::k1F1B, {2, 1, 2});
  options.forward_seconds.pop_back();
  EXPECT_THAT(message(options), HasSubstr("needs 2 forward"));
  options = Equal(ScheduleKind::k1F1B, {2, 1, 2});
  options.message_bytes = {1, 2};
  EXPECT_THAT(message(options), HasSubstr("needs 1 message sizes"));
  EXPECT_THAT(message(Equal(ScheduleKind::k1F1B, {2, 2, 2})), Not(HasSubstr("OK")));
  EXPECT_THAT(message({.kind = ScheduleKind::k1F1B, .shape = {65536, 1, 65536}}), HasSubstr("use fewer micro-batches"));
}

// `hadal simulate --json ARGUMENTS…`.
nlohmann::json SimulateJson(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"simulate", "--json"});
  const CommandResult result = RunCommand(AddSimulateCommand, arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
}

TEST(Simulate, RefusesMoreChunksThanAnIntCounts) {
  const CommandResult result = RunCommand(AddSimulateCommand, {"simulate", "--stages", "65536", "--chunks", "65536"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("passes to replay"));
}

// Two ranks in nodes of their own, one micro-batch: forward, message, and back. Milliseconds, mebibytes, GB/s,
// microseconds.
TEST(Simulate, TheCommandLineHasItsUnits) {
  const std::vector<std::string> base = {"--kind",       "gpipe", "--stages",      "2",  "--micro-batches", "1",
                                         "--forward-ms", "250",   "--backward-ms", "500"};
  const auto step = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return SimulateJson(std::move(arguments))["step_seconds"].get<double>();
  };
  EXPECT_DOUBLE_EQ(step({}), 2 * (0.25 + 0.5));
  EXPECT_DOUBLE_EQ(step({"--tail-ms", "125"}), 1.5 + 0.125);
  EXPECT_NEAR(step({"--latency-us", "1000"}), 1.5 + 2 * 1e-3, 1e-9);
  EXPECT_NEAR(step({"--ranks-per-node", "1", "--node-latency-us", "1000"}), 1.5 + 2 * 1e-3, 1e-9);
  EXPECT_NEAR(step({"--message-mib", "1024", "--link-gb-per-s", "1"}), 1.5 + 2 * 1.073741824, 1e-9);
  EXPECT_NEAR(step({"--message-mib", "1024", "--ranks-per-node", "1", "--node-link-gb-per-s", "2"}), 1.5 + 1.073741824,
              1e-9);
  EXPECT_NEAR(step({"--message-mib", "1024", "--ranks-per-node", "1", "--node-link-gb-per-s", "2",
                    "--pipelines-per-node", "3"}),
              1.5 + 3 * 1.073741824, 1e-9);
  EXPECT_DOUBLE_EQ(step({"--slow-rank", "1=3"}), 0.75 + 3 * 0.75);
  // A rank's time, not a chunk's.
  const nlohmann::json chunks = SimulateJson({"--kind", "interleaved_1f1b", "--stages", "2", "--chunks", "2",
                                              "--micro-batches", "2", "--forward-ms", "250", "--backward-ms", "500"});
  EXPECT_DOUBLE_EQ(chunks["busy_seconds"][0].get<double>(), 2 * (0.25 + 0.5));
}

TEST(Simulate, WhatAPlanSaysAboutTheTailStays) {
  const TemporaryDirectory directory;
  SetContents(directory / "plan.json", R"({"schedule": "1f1b", "ranks": 1, "replicas": 1, "chunks": 1,
      "replica_micro_batches": 2, "outstanding_sends": 2, "tail_seconds": 0.5, "stages": [{"forward_seconds": 1, "backward_seconds": 2, "border_bytes": 0}]})");
  EXPECT_DOUBLE_EQ(SimulateJson({"--plan", directory / "plan.json", "--tail-ms", "250"})["step_seconds"].get<double>(),
                   2 * 3 + 0.5 + 0.25);
}

TEST(Simulate, LinksThatAreGivenReplaceThePlans) {
  const TemporaryDirectory directory;
  SetContents(directory / "plan.json", R"({"schedule": "gpipe", "ranks": 2, "replicas": 1, "chunks": 1,
      "replica_micro_batches": 1, "outstanding_sends": 2,
      "links": [{"held_seconds": 0, "latency_seconds": 8, "backward_held_seconds": 3}],
      "stages": [{"forward_seconds": 1, "backward_seconds": 2, "border_bytes": 0, "gradient_bytes": 5000000},
                 {"forward_seconds": 1, "backward_seconds": 2, "border_bytes": 0, "gradient_bytes": 0}]})");
  EXPECT_NEAR(SimulateJson({"--plan", directory / "plan.json"})["step_seconds"].get<double>(), 6 + 2 * 8 + 3, 1e-9);
  EXPECT_NEAR(SimulateJson({"--plan", directory / "plan.json", "--link-gb-per-s", "1"})["step_seconds"].get<double>(),
              6 + 5e-3, 1e-9);
  EXPECT_NEAR(SimulateJson({"--plan", directory / "plan.json", "--latency-us", "1000"})["step_seconds"].get<double>(),
              6 + 2 * 1e-3, 1e-9);
}

TEST(Simulate, ReadsAPlan) {
  const auto options = SimulateOptionsFromPlan(R"({"schedule": "1f1b", "ranks": 6, "replicas": 3, "chunks": 1,
      "replica_micro_batches": 4, "outstanding_sends": 1, "free_links": true, "tail_seconds": 0.5, "gap_seconds": 0.25,
      "links": [{"held_seconds": 8, "latency_seconds": 9}], "stages": [
      {"forward_seconds": 1, "backward_seconds": 2, "border_bytes": 100},
      {"forward_seconds": 3, "backward_seconds": 4, "border_bytes": 0}]})",
                                               "plan.json")
                           .value();
  EXPECT_EQ(options.shape.stages, 2);
  EXPECT_EQ(options.shape.micro_batches, 4);
  EXPECT_TRUE(options.shape.free_links);
  EXPECT_EQ(options.outstanding_sends, 1);
  EXPECT_EQ(options.gap_seconds, 0.25);
  ASSERT_EQ(options.links.size(), 1u);
  EXPECT_EQ(options.links[0].held_seconds, 8);
  EXPECT_EQ(options.links[0].latency_seconds, 9);
  EXPECT_THAT(options.backward_seconds, ::testing::ElementsAre(2, 4));
  EXPECT_THAT(options.message_bytes, ::testing::ElementsAre(100));
  EXPECT_EQ(options.tail_seconds, 0.5);
  for (const char* wrong : {"", "{}", "[]", R"({"schedule": "1f1b", "ranks": 2, "replicas": 1, "chunks": 1})"}) {
    EXPECT_THAT(std::string(SimulateOptionsFromPlan(wrong, "plan.json").status().message()), HasSubstr("plan.json"));
  }
  for (const char* ranks : {"4294967297", "1e300", "1.5", "0"}) {
    const std::string wrong = absl::StrCat(R"({"schedule": "1f1b", "replicas": 1, "chunks": 1, "outstanding_sends": 1,
        "replica_micro_batches": 1, "stages": [{"forward_seconds": 1, "backward_seconds": 2}], "ranks": )",
                                           ranks, "}");
    EXPECT_THAT(std::string(SimulateOptionsFromPlan(wrong, "plan.json").status().message()),
                HasSubstr("is not output of"));
  }
}

TEST(ScheduleCommand, DrawsOneRowARankWithTheBubbleOfTheFormula) {
  const auto text = PrintSchedule({.shape = {.stages = 2, .chunks = 1, .micro_batches = 4}}).value();
  EXPECT_THAT(text, AllOf(HasSubstr("rank 0  F0"), HasSubstr("rank 1"), HasSubstr("by rank: 2 1"),
                          HasSubstr("bubble by the formula: 20.0%")));
}

TEST(ScheduleCommand, TakesEveryKind) {
  for (const ScheduleKind kind : AllScheduleKinds()) {
    const CommandResult result =
        RunCommand(AddScheduleCommand, absl::StrCat("schedule print --micro-batches 4 --stages 2 --kind ",
                                                    ToString(kind), " --chunks ", RunsSeveralChunks(kind) ? 2 : 1));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat(ToString(kind), ", 2 stage(s)")));
  }
}

TEST(ScheduleCommand, StatesWhichWeightHalvesWait) {
  const auto text =
      PrintSchedule({.kind = ScheduleKind::kZbH1, .shape = {.stages = 3, .chunks = 1, .micro_batches = 5}}).value();
  EXPECT_THAT(text, HasSubstr("weight halves pending at once, by rank: 0 2 3\n"));
}

TEST(ScheduleCommand, RefusesWhatItCannotMake) {
  EXPECT_EQ(PrintSchedule({.shape = {.stages = 2, .chunks = 2, .micro_batches = 2}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto large = PrintSchedule({.shape = {.stages = 65536, .chunks = 1, .micro_batches = 65536}});
  EXPECT_THAT(std::string(large.status().message()), HasSubstr("too large"));
}

}  // namespace
}  // namespace hadal
