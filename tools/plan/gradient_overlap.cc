#include "tools/plan/gradient_overlap.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "pipeline/plan/slice_ownership.h"

namespace hadal {
namespace {

constexpr double kGradientBytes = 4;

// The time when the gradients of each sublayer's own parameters are sent.  [sublayers of the model], 0 for other
// stages'
std::vector<double> LetGoSeconds(const PipelinePlan& plan, int stage, const std::vector<SublayerSeconds>& sublayers,
                                 const Replay& replay, int32_t most_parts) {
  std::vector<double> seconds(sublayers.size(), 0);
  for (const ComputeSpan& span : replay.spans[stage]) {
    const auto& [operation, chunk, micro_batch] = span.instruction;
    if (!EndsBackward(operation) || micro_batch != plan.shape.micro_batches - 1) continue;
    const int32_t first = plan.first_sublayer(stage, chunk), last = plan.last_sublayer(stage, chunk);
    const int32_t parts = std::min(most_parts, last - first);
    const int32_t of_a_part = (last - first + parts - 1) / parts;
    double all = 0;
    for (int32_t s = first; s < last; ++s) all += sublayers[s].recompute + sublayers[s].backward;
    // A weight half is a part of all.
    const double scale = all > 0 ? (span.end_seconds - span.begin_seconds) / all : 0;
    // Of sublayers below s; of those below its part, which end it: it goes from the last one down.
    double below = 0, left = 0;
    for (int32_t s = first; s < last; ++s) {
      if ((last - s) % of_a_part == 0) left = below;
      seconds[s] = span.end_seconds - left;
      below += scale * (sublayers[s].recompute + sublayers[s].backward);
    }
  }
  return seconds;
}

// A table that several sublayers use is first summed over them.
bool IsTied(const ModelPlan& model, int32_t parameter) {
  return model.parameters[parameter].role == ParameterRole::kEmbedding && model.Uses(parameter).size() > 1;
}

// The time when all stages that use a table have finished.
double UsesEnd(const ModelPlan& model, const PipelinePlan& plan, int32_t parameter, const Replay& replay) {
  double end = 0;
  for (const int32_t use : model.Uses(parameter)) {
    end = std::max(end, replay.spans[plan.RankOfSublayer(use)].back().end_seconds);
  }
  return end;
}

}  // namespace

std::vector<GradientPiece> GradientPieces(const ModelPlan& model, const PipelinePlan& plan, int stage,
                                          const std::vector<SublayerSeconds>& sublayers, const Replay& replay,
                                          int32_t most_parts) {
  const std::vector<double> let_go = LetGoSeconds(plan, stage, sublayers, replay, most_parts);
  using Key = std::tuple<bool, double, int>;  // tied, when complete, owner
  std::map<Key, double> elements;
  for (const OwnedSlice& slice : SlicesOfStage(model, plan, stage)) {
    const bool tied = IsTied(model, slice.parameter);
    const double complete =
        tied ? UsesEnd(model, plan, slice.parameter, replay) : let_go[model.parameters[slice.parameter].sublayer];
    elements[{tied, complete, slice.replica}] += static_cast<double>(slice.elements);
  }
  std::vector<GradientPiece> pieces;
  pieces.reserve(elements.size());
  for (const auto& [key, count] : elements) pieces.push_back({std::get<double>(key), std::get<int>(key), count});
  return pieces;
}

double ReplicaBuckets(const ModelPlan& model, const PipelinePlan& plan, int stage) {
  const std::vector<OwnedSlice> slices = SlicesOfStage(model, plan, stage);
  double buckets = 0;
  for (const Storage storage : {Storage::kBFloat16, Storage::kFloat32}) {  // as they lie
    int owner = -1;
    int64_t held = 0;  // of the last bucket
    for (const OwnedSlice& slice : slices) {
      if (model.read_storage(slice.parameter) != storage) continue;
      const bool tied = IsTied(model, slice.parameter);
      const bool joins = !tied && slice.replica == owner && held + slice.elements <= kRunElements;
      if (!joins) buckets += std::ceil(static_cast<double>(slice.elements) / kRunElements);
      // A slice that is split ends with its rest.
      held = joins ? held + slice.elements : (slice.elements - 1) % kRunElements + 1;
      owner = tied ? -1 : slice.replica;
    }
  }
  return buckets;
}

double SummedSeconds(std::span<const GradientPiece> pieces, const ReplicaLinks& links) {
  struct Owner {
    double near = 0, far = 0, summed = 0;  // busy until: links within and between nodes, adding
  };
  std::map<int, Owner> owners;
  double end = 0, called = 0;
  for (const GradientPiece& piece : pieces) {
    called = std::max(called, piece.complete_seconds) + links.host_seconds * piece.elements;
    Owner& owner = owners[piece.owner];
    const auto receive = [&piece](const LinkRate& link, int replicas, double& busy) {
      if (replicas == 0) return 0.0;
      busy = std::max(busy, piece.complete_seconds) + link.HeldSeconds(kGradientBytes * piece.elements * replicas);
      return busy + link.latency_seconds;
    };
    const double received = std::max(receive(links.near, links.near_replicas, owner.near),
                                     receive(links.far, links.far_replicas, owner.far));
    const double adding = (links.near_replicas + links.far_replicas) * piece.elements * links.sum_seconds;
    owner.summed = std::max({owner.summed, received, called}) + adding;
    end = std::max(end, owner.summed);
  }
  return end;
}

}  // namespace hadal
