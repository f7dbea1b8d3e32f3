#include "tools/output/trace_writer.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/support/chrome_trace_check.h"
#include "tests/support/temporary_directory.h"

namespace hadal {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TraceEvent Event(TraceKind kind, double begin, double end, int channel = -1, int micro_batch = -1) {
  return {.kind = kind,
          .chunk = 0,
          .micro_batch = micro_batch,
          .channel = channel,
          .step = 5,
          .begin_seconds = 1000 + begin,
          .end_seconds = 1000 + end};
}

// Two ranks: rank 1 waits for message 0 and finds message 1 there.
RunTrace TwoRanks() {
  RunTrace trace{.first_step = 5, .last_step = 5, .ranks = {{.host = "a"}, {.host = "b \"quoted\""}}};
  trace.ranks[0].events = {Event(TraceKind::kForward, 0, 1, -1, 0), Event(TraceKind::kSend, 1, 1.1, 0, 0),
                           Event(TraceKind::kForward, 1.1, 2, -1, 1), Event(TraceKind::kSend, 2, 2.1, 0, 1),
                           Event(TraceKind::kStep, 0, 4)};
  trace.ranks[1].events = {Event(TraceKind::kReceive, 0, 1.2, 0, 0),
                           Event(TraceKind::kForward, 1.2, 3, -1, 0),
                           Event(TraceKind::kArrival, 2.5, 2.5, 0, 1),
                           Event(TraceKind::kReceive, 3, 3.001, 0, 1),
                           Event(TraceKind::kRecompute, 3.15, 3.2, -1, 1),
                           Event(TraceKind::kBackward, 3.1, 3.5, -1, 1),
                           Event(TraceKind::kStep, 0, 4)};
  return trace;
}

int Count(const nlohmann::json& trace, const char* key, const std::string& value) {
  int count = 0;
  for (const auto& event : trace["traceEvents"]) count += event.value(key, "") == value;
  return count;
}

TEST(TraceJson, ArrowsBarsAndWaits) {
  const std::string text = TraceToJson(TwoRanks());
  EXPECT_THAT(TraceFaults(text), IsEmpty());
  const auto trace = nlohmann::json::parse(text);
  EXPECT_EQ(Count(trace, "ph", "s"), 2);
  EXPECT_EQ(Count(trace, "ph", "f"), 2);
  EXPECT_EQ(Count(trace, "name", "wait for activations 0"), 1);
  EXPECT_EQ(Count(trace, "name", "wait for activations 1"), 0);
  EXPECT_EQ(Count(trace, "name", "receive activations 0"), 1);
  EXPECT_EQ(Count(trace, "name", "in flight: activations 1"), 2);
  for (const auto& event : trace["traceEvents"]) {
    if (event.value("name", "") != "in flight: activations 1") continue;
    EXPECT_NEAR(event["ts"].get<double>(), event["ph"] == "b" ? 2.1e6 : 2.5e6, 0.01) << "since the first event";
    EXPECT_EQ(event["pid"], 1);
  }
}

// Rank = stage * replicas + replica.
TEST(TraceJson, ReplicasKeepToTheirOwnMessages) {
  RunTrace trace = TwoRanks();
  trace.ranks = {trace.ranks[0], trace.ranks[0], trace.ranks[1], trace.ranks[1]};
  const std::string text = TraceToJson(trace);
  EXPECT_THAT(TraceFaults(text), IsEmpty());
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(Count(json, "ph", "s"), 4);
  EXPECT_EQ(Count(json, "name", "wait for activations 0"), 2);
  std::map<int, int> sender_of, receiver_of;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "s") sender_of[event["id"]] = event["pid"];
    if (event["ph"] == "f") receiver_of[event["id"]] = event["pid"];
  }
  for (const auto& [id, sender] : sender_of) EXPECT_EQ(receiver_of[id], sender + 2);
}

// The slices of a trace, each by its name: the name of its track.
std::map<std::string, std::string> TracksOf(const nlohmann::json& trace) {
  std::map<std::pair<int, int>, std::string> words;
  std::map<std::string, std::string> tracks;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "M" && event["name"] == "thread_name")
      words[{event["pid"], event["tid"]}] = event["args"]["name"];
    if (event["ph"] == "X") tracks[event["name"]] = words[{event["pid"], event["tid"]}];
  }
  return tracks;
}

TEST(TraceJson, EveryKindHasItsTrackAndItsWords) {
  RunTrace trace{.first_step = 5, .last_step = 5, .ranks = {{.host = "a"}}};
  for (int kind = 0; kind < kTraceKinds; ++kind) {
    const bool message =
        static_cast<TraceKind>(kind) == TraceKind::kSend || static_cast<TraceKind>(kind) == TraceKind::kReceive;
    trace.ranks[0].events.push_back(
        Event(static_cast<TraceKind>(kind), kind, kind + 1, message ? 1 : -1, message ? 0 : -1));
  }
  const auto json = nlohmann::json::parse(TraceToJson(trace));
  EXPECT_THAT(TracksOf(json),
              UnorderedElementsAre(
                  Pair("forward", "compute"), Pair("recompute", "compute"), Pair("backward", "compute"),
                  Pair("backward weights", "compute"), Pair("send gradients 0", "sends"),
                  Pair("receive gradients 0", "receives"), Pair("wait for gradients 0", "waits"),
                  Pair("sum tied gradients", "update"), Pair("sum over replicas", "update"),
                  Pair("global norm", "update"), Pair("optimizer", "update"), Pair("gather over replicas", "update"),
                  Pair("share tied weights", "update"), Pair("wait until sends are received", "waits"),
                  Pair("step 5", "step"), Pair("validation", "checkpoint"), Pair("checkpoint", "checkpoint")))
      << "a sum over replicas beside the backward is a bar, no slice";
  const double at = static_cast<double>(TraceKind::kReplicaGradients) * 1e6;
  for (const auto& event : json["traceEvents"]) {
    if (event.value("name", "") != "replicas' gradients") continue;
    EXPECT_EQ(event["ts"], event["ph"] == "b" ? at : at + 1e6);
  }
  EXPECT_EQ(Count(json, "name", "replicas' gradients"), 2);
}

TEST(TraceJson, ASliceSaysWhatItIsOf) {
  const auto trace = nlohmann::json::parse(TraceToJson(TwoRanks()));
  std::map<std::string, nlohmann::json> arguments;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["pid"] == 0) arguments[event["name"]] = event["args"];
  }
  EXPECT_EQ(arguments["send activations 0"],
            nlohmann::json::parse(R"({"step":5,"chunk":0,"micro_batch":0,"channel":0})"));
  EXPECT_EQ(arguments["forward 1"], nlohmann::json::parse(R"({"step":5,"chunk":0,"micro_batch":1})"));
}

// The clocks' error is the worst rank's, what was dropped is everybody's.
TEST(TraceJson, SaysHowMuchToBelieve) {
  RunTrace trace = TwoRanks();
  trace.last_step = 6;
  trace.ranks[0].clock_error_seconds = 5e-6;
  trace.ranks[1].clock_error_seconds = 2e-6;
  trace.ranks[0].dropped = 3;
  trace.ranks[1].dropped = 4;
  EXPECT_EQ(
      nlohmann::json::parse(TraceToJson(trace))["otherData"],
      nlohmann::json::parse(R"({"first_step":5,"last_step":6,"ranks":2,"clock_error_us":5.0,"dropped_events":7})"));
}

TEST(TraceJson, TimesAreExactToTheNanosecond) {
  RunTrace trace{.ranks = {{.host = "a", .events = {Event(TraceKind::kStep, 0, 1.000001987)}}}};
  const std::string text = TraceToJson(trace);
  EXPECT_THAT(text, HasSubstr("\"dur\":1000001.987,"));
}

// A clock that is a little ahead, and a message that was there at once.
TEST(TraceJson, ArrowsStayInTheirSlicesAndBarsGoOn) {
  RunTrace trace = TwoRanks();
  trace.ranks[1].events[0].end_seconds = 1001.05;  // the send ends at 1001.1
  TraceEvent& receive = trace.ranks[1].events[3];
  receive.end_seconds = receive.begin_seconds;
  const std::string text = TraceToJson(trace);
  EXPECT_THAT(TraceFaults(text), IsEmpty());
  const auto json = nlohmann::json::parse(text);
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "f" || event["ts"] > 2e6) continue;
    EXPECT_LT(event["ts"].get<double>(), 1.05e6) << "in the slice, not at its end";
  }
}

TEST(TraceJson, TheCheckSeesWhatIsWrong) {
  const auto faults_of = [](const std::function<void(RunTrace&)>& damage) {
    RunTrace trace = TwoRanks();
    damage(trace);
    return TraceFaults(TraceToJson(trace));
  };
  EXPECT_THAT(faults_of([](RunTrace& t) { t.ranks[0].events[0].end_seconds -= 2; }),
              ElementsAre(HasSubstr("negative duration")));
  EXPECT_THAT(faults_of([](RunTrace& t) { t.ranks[1].events[4].end_seconds += 1; }),
              ElementsAre(HasSubstr("sticks out")));
  EXPECT_THAT(faults_of([](RunTrace& t) {
                for (auto& e : t.ranks[1].events) e.end_seconds -= 1, e.begin_seconds -= 1;
              }),
              ::testing::Contains(HasSubstr("back in time")));
  EXPECT_THAT(TraceFaults("{"), ElementsAre("not JSON"));
  const std::string no_end = R"({"otherData":{"clock_error_us":0},"traceEvents":[
      {"ph":"X","pid":0,"tid":1,"name":"a","ts":0,"dur":1},{"ph":"s","pid":0,"tid":1,"id":1,"ts":0}]})";
  EXPECT_THAT(TraceFaults(no_end), ElementsAre(HasSubstr("not exactly two ends")));
  const std::string early = R"({"otherData":{"clock_error_us":0},"traceEvents":[
      {"ph":"X","pid":0,"tid":1,"name":"send","ts":10,"dur":5},{"ph":"X","pid":1,"tid":1,"name":"receive","ts":0,"dur":20},
      {"ph":"s","pid":0,"tid":1,"id":1,"ts":10},{"ph":"f","bp":"e","pid":1,"tid":1,"id":1,"ts":18},
      {"ph":"b","pid":1,"tid":1,"name":"in flight","id":1,"ts":12}]})";
  EXPECT_THAT(TraceFaults(early),
              ElementsAre(HasSubstr("is no bar of a process"), HasSubstr("begins before the arrow")));
}

TEST(TraceSteps, ParsesOneStepAndARange) {
  EXPECT_EQ(ParseTraceSteps("steps=100-102")->first, 100);
  EXPECT_EQ(ParseTraceSteps("steps=100-102")->last, 102);
  EXPECT_EQ(ParseTraceSteps("steps=7")->last, 7);
  EXPECT_EQ(ParseTraceSteps("steps=1-1")->last, 1);
  for (const char* wrong : {"", "100", "steps=0-2", "steps=", "steps=3-2", "steps=-1", "steps=1-2-3", "steps=a-b"}) {
    EXPECT_EQ(ParseTraceSteps(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(TraceJson, WritesIntoTheRunDirectory) {
  const TemporaryDirectory run;
  RunTrace trace = TwoRanks();
  trace.last_step = 6;
  const auto path = WriteTraceJson(trace, run.path()).value();
  EXPECT_EQ(path, run / "trace/steps_5-6.json");
  EXPECT_THAT(TraceFaults(Contents(path)), IsEmpty());
}

}  // namespace
}  // namespace hadal
