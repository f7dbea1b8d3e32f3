// Which ranks exchange what their devices work on: neighbours along the pipeline, the ranks that use a tied table, the
// replicas of a stage. A pure function of the plan, the same on every rank: what NcclCommunicator::Create connects.
#pragma once

#include <span>
#include <vector>

#include "pipeline/pipeline_plan.h"
#include "runtime/comm/nccl_communicator.h"

namespace hadal {

// Of world ranks, each pair once, first < second.
std::vector<RankPair> TransferPairs(const ModelPlan& plan, const PipelinePlan& pipeline);

// The most links that one of the ranks has: two for each pair it is in, one a direction (runtime/comm/nccl_link.h).
int MostLinks(std::span<const RankPair> pairs);

}  // namespace hadal
