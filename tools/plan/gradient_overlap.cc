#include "tools/plan/gradient_overlap.h"

#include <algorithm>
#include <map>
#include <utility>

#include "pipeline/exchange/replica_buckets.h"
#include "pipeline/exchange/replica_reduction.h"
#include "pipeline/layout/slice_ownership.h"

namespace hadal {
namespace {

constexpr double kGradientBytes = 4;

// The time when the gradients of each sublayer's own parameters are sent.  [sublayers of the model], 0 for other
// stages'
std::vector<double> LetGoSeconds(const PipelineLayout& pipeline, int stage,
                                 const std::vector<SublayerSeconds>& sublayers, const Replay& replay,
                                 int32_t most_parts) {
  std::vector<double> seconds(sublayers.size(), 0);
  for (const ComputeSpan& span : replay.spans[stage]) {
    const auto& [operation, chunk, micro_batch] = span.instruction;
    if (!EndsBackward(operation) || micro_batch != pipeline.shape.micro_batches - 1) continue;
    const int32_t first = pipeline.first_sublayer(stage, chunk), last = pipeline.last_sublayer(stage, chunk);
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

// The time when all stages that use a table have finished.
double UsesEnd(const ModelPlan& model, const PipelineLayout& pipeline, int32_t parameter, const Replay& replay) {
  double end = 0;
  for (const int32_t use : model.Uses(parameter)) {
    end = std::max(end, replay.spans[pipeline.RankOfSublayer(use)].back().end_seconds);
  }
  return end;
}

}  // namespace

std::vector<GradientPiece> GradientPieces(const ModelPlan& model, const PipelineLayout& pipeline, int stage,
                                          const std::vector<SublayerSeconds>& sublayers, const Replay& replay,
                                          int32_t most_parts) {
  const std::vector<double> let_go = LetGoSeconds(pipeline, stage, sublayers, replay, most_parts);
  std::map<int, double> complete;                  // by round
  std::map<std::pair<int, int>, double> elements;  // by round and owner
  for (const OwnedSlice& slice : SlicesOfStage(model, pipeline, stage)) {
    const double seconds = IsTiedTable(model, slice.parameter) ? UsesEnd(model, pipeline, slice.parameter, replay)
                                                               : let_go[model.parameters[slice.parameter].sublayer];
    complete[slice.round] = std::max(complete[slice.round], seconds);
    elements[{slice.round, slice.replica}] += static_cast<double>(slice.elements);
  }
  std::vector<GradientPiece> pieces;
  pieces.reserve(elements.size());
  for (const auto& [key, count] : elements) pieces.push_back({key.first, complete[key.first], key.second, count});
  return pieces;
}

int ReplicaRounds(const ModelPlan& model, const PipelineLayout& pipeline, int stage) {
  int rounds = 0;
  for (const OwnedSlice& slice : SlicesOfStage(model, pipeline, stage)) rounds = std::max(rounds, slice.round + 1);
  return rounds;
}

int ReplicaExchanges(const ModelPlan& model, const PipelineLayout& pipeline, int stage) {
  const bool blocks = ReplicaBlocks{.replicas = pipeline.grid.replicas}.count() > 1;
  return ReplicaRounds(model, pipeline, stage) + (blocks ? ReplicaReduction::kBuffers : 0);
}

double GatherBehindUpdate(const UpdateAndGather& tail) {
  const double last = tail.gather_seconds * (tail.exchanges - tail.rounds + 1) / tail.exchanges;
  return std::max(tail.update_seconds / tail.rounds + tail.gather_seconds - tail.update_seconds, last);
}

double SummedSeconds(std::span<const GradientPiece> pieces, const ReplicaLinks& links) {
  struct Owner {
    double near = 0, far = 0, summed = 0;  // busy until: links within and between nodes, adding
  };
  std::map<int, Owner> owners;
  double end = 0, called = 0;
  int round = -1;
  for (const GradientPiece& piece : pieces) {
    if (std::exchange(round, piece.round) != piece.round) {
      called = std::max(called, piece.complete_seconds) + links.round_seconds;
    }
    Owner& owner = owners[piece.owner];
    const auto receive = [&piece](const LinkRate& link, double count, double& busy) {
      if (count == 0) return 0.0;
      busy = std::max(busy, piece.complete_seconds) + link.HeldSeconds(kGradientBytes * piece.elements * count);
      return busy + link.latency_seconds;
    };
    const double received =
        std::max(receive(links.near, links.near_pieces, owner.near), receive(links.far, links.far_pieces, owner.far));
    const double adding = (links.near_pieces + links.far_pieces) * piece.elements * links.sum_seconds;
    owner.summed = std::max({owner.summed, received, called}) + adding;
    end = std::max(end, owner.summed);
  }
  return pieces.empty() ? end : end + links.rounds_behind * (links.round_seconds + links.far.latency_seconds);
}

}  // namespace hadal
