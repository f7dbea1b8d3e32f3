// What `hadal plan` knows about a run before it starts: where the model is cut, what each rank computes, holds and
// sends, and how long a step should take. The same functions that training uses make it, so that its bytes are the
// arena's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "pipeline/pipeline_plan.h"
#include "pipeline/train_options.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "tools/plan/layout_prediction.h"

namespace hadal {

// How fast one rank is. Of a device that is not here it may be unknown: then a report states no times.
struct MachineRate {
  double gflops = 0;                    // of matrix products, 2 operations a multiply-add; 0: unknown
  double adam_elements_per_second = 0;  // 0: unknown, and Adam not in the times
  bool measured = false;                // on this machine; else given by a person
  bool known() const { return gflops > 0; }
};

// Times the feed-forward's three products and Adam at the model's width: about a third of a second. Blocking.
MachineRate MeasureRate(const ModelOptions& model, const ActivationCapacity& capacity, const Stream& stream);

// What a process takes besides its arena, measured (README.md): the binary with its libraries, MPI, and oneDNN's own
// packing buffers. Files mapped by a corpus come on top, but the kernel takes those pages back when it needs them.
struct MemoryAllowance {
  static constexpr int64_t kProcessBytes = int64_t{48} << 20;
  static constexpr int64_t kThreadBytes = int64_t{16} << 20;
  static constexpr int64_t Bytes(int threads) { return kProcessBytes + threads * kThreadBytes; }
};

// One of a rank's chunks.
struct ChunkReport {
  int32_t rank = 0, chunk = 0;
  int32_t first = 0, last = 0;  // sublayers
  int64_t parameters = 0;
  double cost_share = 0;                             // of the model's multiply-adds
  double forward_seconds = 0, backward_seconds = 0;  // of one micro-batch; recomputation counts as backward
  int32_t live_micro_batches = 0;
  // To the next chunk, for one micro-batch, and of their gradients back: not alike where they are stored in other types
  // (layers/border.h).
  int64_t border_bytes = 0, gradient_bytes = 0;
};

struct PlanReport {
  ModelPlan model;
  PipelinePlan pipeline;
  MachineRate rate;
  int threads = 1;
  DeviceKind device = DeviceKind::kCpu;
  std::vector<ChunkReport> chunks;   // in order of depth, of replica 0
  std::vector<ArenaLayout> layouts;  // [ranks], stages x replicas
  int64_t relu_mask_bytes = 0;       // of them, the most that a rank has for masks, if its device has the products
  double step_seconds = 0;           // by replay, the optimizer's added
  double optimizer_seconds = 0;      // of the slowest rank
  double bubble = 0;                 // share of the ranks' time, by replay
  std::optional<LayoutPrediction> prediction;  // where a profile gave the times
};

// `stream`: may be one for layouts alone. Errors: those of MakeFittingPlan (ResourceExhausted, with the nearest
// settings that fit).
absl::StatusOr<PlanReport> MakePlanReport(const TrainOptions& options, int ranks, const Stream& stream,
                                          const MachineRate& rate);
// The same with costs instead of a rate; `rate` is then theirs. `machine`: on whose nodes the ranks lie; none: all on
// one, in fp32.
absl::StatusOr<PlanReport> MakePlanReport(const TrainOptions& options, int ranks, const Stream& stream,
                                          const StepCosts& costs, const std::optional<Machine>& machine = std::nullopt);

// Target tokens of a step, of all replicas together, when its micro-batches are full.
double StepTokens(const PlanReport& report);
// What a rank's regions of one name take, wherever they lie; in order of first use.
std::vector<std::pair<std::string, int64_t>> BytesByName(const ArenaLayout& layout);

struct PlanText {
  bool sublayers = false;  // list every sublayer
};
std::string PlanToText(const PlanReport& report, const PlanText& options);
std::string PlanToJson(const PlanReport& report, const PlanText& options);

}  // namespace hadal
