// `hadal simulate` predicts the time of a pipeline's step without running it: any schedule on up to thousands of ranks,
// with given costs, slow ranks and limited links.
//
//   hadal simulate --stages 8 --micro-batches 32 --forward-ms 10 --backward-ms 20 [--kind 1f1b] [--chunks V]
//   hadal simulate --plan plan.json          costs, links and shape of `hadal plan --json`: the plan's step (with
//                                            --machine, the best layout's)
//   hadal simulate --run RUN_DIR             shape of a traced run and costs of its trace; prints the replay beside the
//                                            trace's measured time
//     --slow-rank 3=1.5                      rank 3 computes 1.5 times as long; may be repeated
//     --message-mib, --link-gb-per-s, --latency-us (instead of the plan's links); between nodes --ranks-per-node with
//     --node-link-gb-per-s, --node-latency-us
//     --pipelines-per-node R                 R pipelines share the links between nodes
//     --tail-ms                              the end of a step: optimizer and the rest
//     --svg FILE (drawn by pyhadal), --json
//
// Model: pipeline/schedule/schedule_replay.h. A rank's forward is its whole share of one micro-batch; with V chunks
// each takes 1/V of it. A message holds its link for message / bandwidth. Ranks r and r + 1 are on one node unless
// ranks-per-node divides r + 1. Not modelled: contention inside a switch, jitter, gradient all-reduces (add them to the
// tail). Exit codes: 0 done, 1 error, 2 bad usage.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/schedule/schedule.h"
#include "tools/plan/step_breakdown.h"
#include "tools/plan/step_costs.h"

namespace hadal {

struct SlowRank {
  int rank = 0;
  double factor = 1;
};

struct SimulateOptions {
  ScheduleKind kind = ScheduleKind::k1F1B;
  ScheduleShape shape{.stages = 8, .chunks = 1, .micro_batches = 32};  // of one replica
  int outstanding_sends = 2;
  std::vector<double> forward_seconds;   // [G]
  std::vector<double> backward_seconds;  // [G]
  std::vector<double> weight_seconds;    // [G] as ReplayCosts, or empty
  std::vector<double> message_bytes;     // [G - 1], or empty
  std::vector<double> gradient_bytes;    // [G - 1] of messages with gradients; empty: message_bytes
  double gap_seconds = 0;                // host time to launch each forward and backward
  std::vector<SlowRank> slow_ranks;
  std::vector<LinkCost> links;  // [G - 1] a plan's; empty: from the messages and the speeds below
  LinkRate link;                // between ranks of a node
  LinkRate node_link;           // between nodes
  int ranks_per_node = 0;       // 0: one node
  int pipelines_per_node = 1;
  double tail_seconds = 0;
  double traced_seconds = 0;  // measured time of the schedule in the traced step that gave the costs; 0: none
};

struct Simulation {
  SimulateOptions options;
  BrokenDownReplay result;
  double step_seconds = 0;   // makespan and tail
  double bound_seconds = 0;  // lower bound for every schedule: the busiest rank's work and the tail
  int busiest_rank = 0;
};

// Errors: InvalidArgument (a slow rank that does not exist, an impossible factor or cost; the schedule's own errors).
absl::StatusOr<Simulation> Simulate(const SimulateOptions& options);

// The simulation as text (a drawing if it fits, and the breakdown), and as JSON.
std::string SimulationToText(const Simulation& simulation);
std::string SimulationToJson(const Simulation& simulation);
// What each rank did when, for pyhadal to draw: {"kinds": [name …], "end_seconds": t, "rows": [{"name": …, "spans":
// [[begin, end, kind, label] …]} …]}; spans in order of time, not overlapping; a kind is an index, a label as "F3".
nlohmann::ordered_json TimelineToJson(const Simulation& simulation);

// Takes shape and costs of one replica from the output of `hadal plan --json`.  Errors: InvalidArgument with `name` and
// what is missing.
absl::StatusOr<SimulateOptions> SimulateOptionsFromPlan(const std::string& json, const std::string& name);

// Takes shape and costs from the middle step of a run's trace.  Errors: ReadRun's; NotFound if the run has no trace or
// no config.
absl::StatusOr<SimulateOptions> SimulateOptionsFromRun(const std::string& directory);

}  // namespace hadal
