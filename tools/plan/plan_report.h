// What `hadal plan` reports about a run before it starts: where the model is cut, what each rank computes, holds and
// sends, and how long a step should take. It uses training's own functions, so its bytes are the arena's.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/options/train_options.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "tools/plan/layout_prediction.h"

namespace hadal {

// The speed of one rank. For a device that is not present it may be unknown; a report then states no times.
struct MachineRate {
  double gflops = 0;                    // of matrix products, 2 operations per multiply-add; 0: unknown
  double adam_elements_per_second = 0;  // 0: unknown; times then leave Adam out
  bool measured = false;                // on this machine; else given by the user
  bool known() const { return gflops > 0; }
};

// Times the feed-forward's three products and Adam at the model's width; takes about a third of a second. Blocking.
MachineRate MeasureRate(const ModelOptions& model, const ActivationCapacity& capacity, const Stream& stream);

// Memory of a process besides its arena, measured (README.md): the binary with its libraries, MPI, and stacks. Mapped
// corpus files are not included; the kernel takes those pages back when it needs them.
struct MemoryAllowance {
  static constexpr int64_t kProcessBytes = int64_t{48} << 20;
  static constexpr int64_t kThreadBytes = int64_t{16} << 20;
  static constexpr int64_t Bytes(int threads) { return kProcessBytes + threads * kThreadBytes; }
};

// One chunk of a rank.
struct ChunkReport {
  int32_t rank = 0, chunk = 0;
  int32_t first = 0, last = 0;  // sublayers
  int64_t parameters = 0;
  int32_t recomputed_sublayers = 0;
  double cost_share = 0;                             // of the model's multiply-adds
  double forward_seconds = 0, backward_seconds = 0;  // of one micro-batch; recomputation counts as backward
  double weight_seconds = 0;                         // the weight half's part of the backward
  int32_t live_micro_batches = 0;                    // the most that are in memory at once
  // Bytes sent to the next chunk for one micro-batch, and of their gradients sent back. They differ where the two are
  // stored in different types (layers/border.h).
  int64_t border_bytes = 0, gradient_bytes = 0;
};

struct ClusterOptions {
  int ranks_per_node = 0;          // ranks fill nodes in order; 0: all are on one
  double write_gb_per_second = 1;  // 1e9 bytes that all ranks together write
  double grace_seconds = 300;      // from a signal to the end of the job; default: launch/slurm/train.sbatch's
};

// What a planned run needs of a cluster beside its devices: the hosts' memory, and the time and space of checkpoints.
struct ClusterNeeds {
  ClusterOptions options;
  int nodes = 1;
  int64_t host_bytes = 0;         // the fullest node's, without the driver's and the page cache
  int64_t copy_bytes = 0;         // part of host_bytes: copies in memory (checkpoint.memory_every_steps)
  int64_t checkpoint_bytes = 0;   // of one, without names and checksums
  double checkpoint_seconds = 0;  // to write it, at options.write_gb_per_second
  double interval_seconds = 0;    // between two; 0: not known, or only at the end
  int64_t kept_checkpoints = -1;  // at most, with the one that is being written; -1: without a bound known here
  // At most from a signal to the end: a step (not counted if its time is not known), the rest of a save, a save.
  double end_seconds = 0;

  int64_t kept_bytes() const { return kept_checkpoints < 0 ? -1 : kept_checkpoints * checkpoint_bytes; }
  bool fits_grace() const { return end_seconds <= options.grace_seconds; }
};

struct PlanReport {
  ModelPlan model;
  PipelineLayout pipeline;
  MachineRate rate;
  int threads = 1;
  DeviceKind device = DeviceKind::kCpu;
  std::vector<ChunkReport> chunks;   // in order of depth, of replica 0
  std::vector<ArenaLayout> layouts;  // [ranks], stages x replicas
  int64_t relu_mask_bytes = 0;       // part of layouts: the most that a rank reserves for ReLU masks (relu_masks.h)
  double step_seconds = 0;           // by replay, plus the optimizer's
  double optimizer_seconds = 0;      // of the slowest rank
  double muon_operations = 0;        // of the rank that orthogonalises most
  double bubble = 0;                 // share of the ranks' time, by replay
  std::optional<LayoutPrediction> prediction;  // if costs gave the times
  std::optional<ClusterNeeds> cluster;         // if requested

  // LimitedBytes (memory_fit.h) of the rank that has the most.
  int64_t FullestBytes() const;
};

// Returns the model with the types in which this kind of device stores numbers.
ModelPlan PlannedModel(const TrainOptions& options, DeviceKind device);
// Returns the resources of `ranks` ranks on this kind of device: whether messages are in device memory and take time,
// and the memory limit of `options`.
RankResources PlannedResources(const PipelineOptions& options, int ranks, DeviceKind device);

// Returns the report of a run, with times from a rate: none if it is unknown. `stream` may be Stream::ForLayouts.
// Errors: those of MakeFittingLayout (ResourceExhausted, with the nearest settings).
absl::StatusOr<PlanReport> MakePlanReport(const TrainOptions& options, int ranks, const Stream& stream,
                                          const MachineRate& rate);
// Returns such a report with the times that PredictLayout derives from `costs`, and with `prediction`. The report's
// rate is the costs' peak. `devices_per_node`: ranks fill nodes of this size; 0: all are on one node.
// Errors: also those of the costs.
absl::StatusOr<PlanReport> MakePlanReport(const TrainOptions& options, int ranks, const Stream& stream,
                                          const StepCosts& costs, int devices_per_node = 0);

// Target tokens of a step over all replicas, if its micro-batches are full.
double StepTokens(const PlanReport& report);
// Bytes of a rank's regions, summed by name over device and host, in order of first use.
std::vector<std::pair<std::string, int64_t>> BytesByName(const ArenaLayout& layout);

// Returns what the plan in `report` needs if it is trained with the settings of `run`. Pure.
ClusterNeeds ClusterNeedsOf(const PlanReport& report, const TrainOptions& run, const ClusterOptions& options);

// Returns four lines of text: hosts, saving, storage, signal.
std::string ToText(const ClusterNeeds& needs);
// Returns the object "cluster" of the plan's JSON; an unbounded number of kept checkpoints (-1) is null.
nlohmann::ordered_json ToJson(const ClusterNeeds& needs);

// The CUDA graphs of the rank that keeps the most launches in them.
struct RecordedGraphs {
  int64_t graphs = 0, launches = 0;
};
RecordedGraphs MostGraphsOfARank(const PlanReport& report);

struct PlanText {
  bool sublayers = false;  // list every sublayer
  bool all_ranks = false;  // a line for each rank, however many there are
};
std::string PlanToText(const PlanReport& report, const PlanText& options);
std::string PlanToJson(const PlanReport& report, const PlanText& options);

}  // namespace hadal
