#include "tools/plan/layout_estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/segment.h"
#include "pipeline/exchange/replica_buckets.h"

namespace hadal {
namespace {

// Number of live micro-batches on a stage, summed over its chunks.
double LiveChunks(const LayoutPrediction& layout, int stage) {
  const ScheduleShape shape{.stages = layout.pipeline.stages,
                            .chunks = layout.pipeline.chunks,
                            .micro_batches = ShareOf(layout.batch.micro_batches, layout.pipeline.replicas, 0).count};
  return static_cast<double>(PeakLive(layout.pipeline.schedule, shape, stage));
}

std::vector<int32_t> EqualBorders(const ModelPlan& model, int pieces) {
  std::vector<int32_t> borders;
  const int64_t sublayers = std::ssize(model.sublayers);
  for (int64_t g = 0; g <= pieces; ++g) borders.push_back(static_cast<int32_t>(g * sublayers / pieces));
  return borders;
}

}  // namespace

LayoutEstimate::LayoutEstimate(const ModelPlan& model, const LayoutMachine& machine)
    : model_(model), machine_(machine), elements_before_{0}, foreign_before_{0} {
  for (const SublayerRecord& sublayer : model.sublayers) {
    double elements = 0;
    for (int32_t p = sublayer.first_parameter; p < sublayer.first_parameter + sublayer.parameters; ++p) {
      elements += static_cast<double>(model.parameters[p].elements());
    }
    elements_before_.push_back(elements_before_.back() + elements);
    const bool borrows = sublayer.table >= 0 && (sublayer.table < sublayer.first_parameter ||
                                                 sublayer.table >= sublayer.first_parameter + sublayer.parameters);
    foreign_before_.push_back(foreign_before_.back() +
                              (borrows ? static_cast<double>(model.parameters[sublayer.table].elements()) : 0));
  }
}

const LayoutEstimate::Kept& LayoutEstimate::KeptBy(const BatchOptions& batch) {
  const std::pair key(batch.source_tokens, batch.target_tokens);
  if (const auto found = kept_.find(key); found != kept_.end()) return found->second;
  Kept kept{.capacity = CapacityOf(model_.options, batch), .saved_before = {0}};
  const int32_t sublayers = static_cast<int32_t>(model_.sublayers.size());
  for (int32_t s = 0, end = 0; s < sublayers; ++s) {
    double floats = 0;
    if (model_.sublayers[s].layer >= 0 && s >= end) {
      end = model_.NextCut(s + 1);
      floats = static_cast<double>(Segment(model_, s, end, kept.capacity).saved_bytes()) / sizeof(float);
    }
    kept.saved_before.push_back(kept.saved_before.back() + floats);
  }
  return kept_.emplace(key, std::move(kept)).first->second;
}

double LayoutEstimate::SlotFloats(const LayoutPrediction& layout, const Kept& kept, int32_t first, int32_t last) const {
  const double d = model_.options.d_model;
  const double source = static_cast<double>(kept.capacity.source_rows) * d;
  const double target = static_cast<double>(kept.capacity.target_rows) * d;
  const int32_t middle = std::clamp(model_.target_embedding(), first, last);
  const int every = layout.pipeline.recompute_every;
  const auto segments = [&](int32_t sublayers) {
    return sublayers == 0 ? 0 : every == 0 ? 1 : std::ceil(static_cast<double>(sublayers) / every);
  };
  double floats = segments(middle - first) * source + segments(last - middle) * target;
  if (last > model_.target_embedding()) floats += source;      // the memory
  if (last == std::ssize(model_.sublayers)) floats += target;  // the head's gradient
  if (every == 0) floats += kept.saved_before[last] - kept.saved_before[first];
  return floats;
}

// Buffers on one side of a cut: one for the output, and a ring for each direction.
double LayoutEstimate::BorderFloats(const LayoutPrediction& layout, const Kept& kept, int32_t cut) const {
  if (cut == 0 || cut == std::ssize(model_.sublayers)) return 0;
  const int64_t rows = cut <= model_.target_embedding() ? kept.capacity.source_rows
                                                        : kept.capacity.source_rows + kept.capacity.target_rows;
  return (1 + 2.0 * layout.pipeline.outstanding_sends) * static_cast<double>(rows * model_.options.d_model);
}

double LayoutEstimate::ScratchFloats(const Kept& kept) const {
  const ModelOptions& model = model_.options;
  const double rows = static_cast<double>(std::max(kept.capacity.source_rows, kept.capacity.target_rows));
  const double both = static_cast<double>(kept.capacity.source_rows + kept.capacity.target_rows);
  const double d = model.d_model;
  double floats =
      rows * (5 * d + std::max(3.0 * d, static_cast<double>(model.d_ff))) + both * d;  // workspace, gradients
  floats += static_cast<double>(Workspace::kLogitRows) * model.target_vocabulary;
  floats += static_cast<double>(model.max_positions) * d;
  return floats;
}

double LayoutEstimate::StageBytesOf(const LayoutPrediction& layout, const std::vector<int32_t>& borders,
                                    const Kept& kept, int stage) {
  const int stages = layout.pipeline.stages, chunks = layout.pipeline.chunks;
  double owned = 0, foreign = 0, slots = 0, rings = 0, sublayers = 0, saved = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int32_t first = borders[chunk * stages + stage], last = borders[chunk * stages + stage + 1];
    owned += elements_before_[last] - elements_before_[first];
    foreign += foreign_before_[last] - foreign_before_[first];
    slots += SlotFloats(layout, kept, first, last);
    rings += BorderFloats(layout, kept, first) + BorderFloats(layout, kept, last);
    saved += kept.saved_before[last] - kept.saved_before[first];
    sublayers += last - first;
  }
  double floats = LiveChunks(layout, stage) / chunks * slots + rings;
  const int every = layout.pipeline.recompute_every;
  if (every > 0) floats += saved * std::min(1.0, every / sublayers);
  constexpr double kReceiveBuffers = 2;
  const double bucket = std::min<double>(owned / layout.pipeline.replicas, ReplicaBucket::kMostElements);
  const double received = kReceiveBuffers * (layout.pipeline.replicas - 1) * bucket;
  const bool half = machine_.precision == Precision::kBf16;
  const double shards = layout.pipeline.shard_optimizer_state ? layout.pipeline.replicas : 1;
  const double read_bytes = half ? 2 : 4, gradient_bytes = 4, updated_bytes = half ? 4 + 8 : 8;
  return owned * (read_bytes + gradient_bytes + updated_bytes / shards) + foreign * (read_bytes + gradient_bytes) +
         floats * ResidualBytes(model_.options, machine_.precision) + 4 * (ScratchFloats(kept) + received);
}

int64_t LayoutEstimate::Bytes(const LayoutPrediction& layout, const std::vector<int32_t>& borders) {
  const Kept& kept = KeptBy(layout.batch);
  double most = 0;
  for (int stage = 0; stage < layout.pipeline.stages; ++stage) {
    most = std::max(most, StageBytesOf(layout, borders, kept, stage));
  }
  return static_cast<int64_t>(most);
}

int32_t LayoutEstimate::BestSegment(const LayoutPrediction& layout) {
  const double sublayers = static_cast<double>(model_.sublayers.size()) / layout.pipeline.stages;
  const Kept& kept = KeptBy(layout.batch);
  const double rows = static_cast<double>(std::max(kept.capacity.source_rows, kept.capacity.target_rows));
  const double input = LiveChunks(layout, 0) / layout.pipeline.chunks * rows * model_.options.d_model;
  const double saved = kept.saved_before.back() / static_cast<double>(model_.sublayers.size());
  // input·n/k + saved·k is least at k = sqrt(input·n / saved).
  const double best = std::sqrt(input * sublayers / saved);
  return static_cast<int32_t>(std::clamp(std::round(best), 1.0, std::max(1.0, std::floor(sublayers))));
}

bool LayoutEstimate::AnyFits(std::vector<LayoutPrediction> layouts, int64_t limit_bytes) {
  for (LayoutPrediction& layout : layouts) {
    if (layout.pipeline.recompute_every > 0) layout.pipeline.recompute_every = BestSegment(layout);
    if (Bytes(layout, EqualBorders(model_, layout.pipeline.stages * layout.pipeline.chunks)) <= limit_bytes)
      return true;
  }
  return false;
}

}  // namespace hadal
