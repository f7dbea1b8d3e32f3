// Predicts when the gradients of a stage are summed over its R replicas, if the sums overlap a step's last backward.
//
//   start(i)    = max(complete(i), received(i−1))
//   received(i) = start(i) + pieces · bytes(i) / bandwidth
//   summed(i)   = max(received(i) + latency, called(i), summed(i−1)) + pieces · adding(i)
// where i counts the pieces of one owner in order of completion, `pieces` is how many replicas' pieces i the owner
// receives, adding(i) is the time to add one of them, and called(i) is the time when the host has made the calls for
// this piece's round and all earlier ones. A piece is the part of a round that has one owner; it is complete
// when the whole round is. Each slice has one owner among the replicas and one round (slice_ownership.h); the owner
// receives R−1 pieces of it, each over one link within or between nodes. With blocks of replicas
// (exchange/replica_buckets.h) a rank receives pieces in two roles: as a relay those of its block for an owner
// elsewhere, as an owner one sum of each block; `pieces` counts both. The slices of every owner are spread over the
// depth of the stage, so each owner receives during the whole backward; only the transfer of the last piece cannot
// overlap it. Completion: during the last micro-batch of a chunk, backward runs from the last sublayer to the first
// and sends gradients in parts with equal numbers of sublayers: one sublayer per part on CPUs, at most 16 parts on a
// device with graphs (graph_cache.h). Tied tables are last, after every stage that uses one. Not modelled:
// recomputation of a whole segment before its backward; send limits, which are never the bottleneck.
// Threads: pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/model_plan.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/schedule/schedule_replay.h"
#include "tools/plan/step_costs.h"

namespace hadal {

// The gradients of one round that one owner receives.
struct GradientPiece {
  int round = 0;
  double complete_seconds = 0;
  int owner = 0;  // replica
  double elements = 0;
};

// The pieces of a stage, in the order of rounds and owners.
// `replay`: of the plan, with the costs `sublayers`. `most_parts`: StepCosts::backward_parts().
std::vector<GradientPiece> GradientPieces(const ModelPlan& model, const PipelineLayout& pipeline, int stage,
                                          const std::vector<SublayerSeconds>& sublayers, const Replay& replay,
                                          int32_t most_parts);

// The rounds of a stage's gradients, and the exchanges in which its replicas send them: more, if there are blocks.
int ReplicaRounds(const ModelPlan& model, const PipelineLayout& pipeline, int stage);
int ReplicaExchanges(const ModelPlan& model, const PipelineLayout& pipeline, int stage);

// The links over which a rank receives the pieces of a round: within its node (near) and between nodes (far).
struct ReplicaLinks {
  LinkRate near, far;
  double near_pieces = 0, far_pieces = 0;  // for each bucket that the rank sums
  double sum_seconds = 0;                  // to add one element
  double round_seconds = 0;                // of a rank's host, to make the calls of a round
  int rounds_behind = 0;                   // exchanges after the last round's, with blocks: their sums
};

// The update of a stage's weights and their way to its replicas, round by round (StepTail).
struct UpdateAndGather {
  double update_seconds = 0, gather_seconds = 0;  // of all rounds, each by itself
  int rounds = 1, exchanges = 1;                  // equally long; the last round ends with the last exchange
};

// Returns the seconds by which gathering extends the update. A round is gathered after its update and after the
// gathering of the rounds before it; so the end is the later of (first round's update + all exchanges) and (whole
// update + last round's exchanges).
double GatherBehindUpdate(const UpdateAndGather& tail);

// The time when all pieces are summed; 0 without pieces. `pieces`: in the order of rounds.
double SummedSeconds(std::span<const GradientPiece> pieces, const ReplicaLinks& links);

}  // namespace hadal
