#include "tools/plan/layout_bounds.h"

#include <algorithm>

#include "layers/parameter_store.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/layout/slice_ownership.h"
#include "pipeline/schedule/schedule_replay.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

GridShape GridOf(const LayoutPrediction& layout) {
  return {layout.pipeline.stages, layout.pipeline.replicas, layout.pipeline.placement};
}

}  // namespace

absl::StatusOr<const std::vector<SublayerSeconds>*> LayoutBounds::Seconds(const BatchOptions& batch, bool recompute) {
  const std::pair key(batch.micro_batches, recompute);
  auto found = seconds_.find(key);
  if (found == seconds_.end()) {
    absl::StatusOr<std::vector<SublayerSeconds>> seconds =
        machine_.costs.Sublayers(model_, CapacityOf(model_.options, batch), recompute);
    if (!seconds.ok() && !absl::IsNotFound(seconds.status())) return seconds.status();
    if (!seconds.ok() && batch.micro_batches == batch_.micro_batches) return seconds.status();
    found = seconds_.emplace(key, seconds.ok() ? std::optional(*std::move(seconds)) : std::nullopt).first;
  }
  return found->second ? &*found->second : nullptr;
}

absl::StatusOr<double> LayoutBounds::Share(const LayoutPrediction& layout) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<SublayerSeconds>* seconds,
                         Seconds(layout.batch, layout.pipeline.recompute_every > 0));
  if (seconds == nullptr) return std::numeric_limits<double>::infinity();
  // Where the backward is split, weight halves run beside the way of a micro-batch.
  const double beside = SplitsBackward(layout.pipeline.schedule) ? kWeightShare : 0;
  double all = 0, way = 0;
  for (const SublayerSeconds& sublayer : *seconds) {
    all += sublayer.sum();
    way += sublayer.sum() - beside * sublayer.backward;
  }
  const int share = ShareOf(layout.batch.micro_batches, layout.pipeline.replicas, 0).count;
  roofline_seconds_ = std::min(roofline_seconds_, all * layout.batch.micro_batches / layout.ranks());
  return std::max(way, all * share / layout.pipeline.stages);
}

double LayoutBounds::Cut(const LayoutPrediction& layout, const std::vector<int32_t>& borders) const {
  const std::vector<SublayerSeconds>& seconds =
      *seconds_.at({layout.batch.micro_batches, layout.pipeline.recompute_every > 0});
  const int stages = layout.pipeline.stages, chunks = layout.pipeline.chunks;
  const int share = ShareOf(layout.batch.micro_batches, layout.pipeline.replicas, 0).count;
  const double launches = 2 * PhaseGapSeconds(machine_.costs, stages * chunks);  // of a forward and a backward
  double before = 0, bound = 0;  // before: the first chunks of earlier stages
  for (int stage = 0; stage < stages; ++stage) {
    double busy = 0, first = 0, first_forward = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      double work = 0;
      for (int32_t s = borders[chunk * stages + stage]; s < borders[chunk * stages + stage + 1]; ++s) {
        work += seconds[s].sum();
        if (chunk == 0) first_forward += seconds[s].forward;
      }
      busy += work;
      if (chunk == 0) first = work;
    }
    bound = std::max(bound, share * std::max(busy, chunks * launches) + before);
    // Where the backward is split, weight halves may run while the last micro-batch returns.
    const double ways = SplitsBackward(layout.pipeline.schedule) ? 1 : 2;
    before += ways == 2 ? first : first_forward;
    if (stage + 1 < stages) before += ways * Message(layout, stage) + ways / 2 * launches;
  }
  return bound + Tail(layout);
}

// Lower bound of the time after the last backward: gathering weights or updating them, whichever is longer, because
// they may overlap, and the rest of the update, with stages of equal size.
double LayoutBounds::Tail(const LayoutPrediction& layout) const {
  const double elements = static_cast<double>(model_.ParameterElements()) / layout.pipeline.stages;
  const bool shards = layout.pipeline.shard_optimizer_state;
  const double updated = shards ? elements / layout.pipeline.replicas : elements;
  const double weight_bytes = shards ? static_cast<double>(BytesOf(model_.compute_storage)) : 4;
  const int replicas = layout.pipeline.replicas;
  const int64_t longest_run = BucketElements(static_cast<int64_t>(elements), replicas) + kSliceElements;
  const double rounds = elements / static_cast<double>(replicas * longest_run);
  return machine_.costs.UpdateSeconds(elements, /*updated=*/0) +
         std::max(machine_.costs.UpdateSeconds(/*held=*/0, updated),
                  ExchangeSeconds(weight_bytes * elements, rounds, GridOf(layout), machine_));
}

// A message has at least one edge of the smaller side.
double LayoutBounds::Message(const LayoutPrediction& layout, int stage) const {
  const LinkRate link = machine_.costs.Link(LeavesNode(GridOf(layout), stage, stage + 1, machine_));
  const ActivationCapacity capacity = CapacityOf(model_.options, layout.batch);
  const int64_t rows =
      model_.options.has_encoder() ? std::min(capacity.source_rows, capacity.target_rows) : capacity.target_rows;
  const int64_t bytes = rows * model_.options.d_model * BytesOf(model_.compute_storage);
  return link.HeldSeconds(static_cast<double>(bytes)) + link.latency_seconds;
}

}  // namespace hadal
