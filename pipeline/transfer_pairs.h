// Which ranks exchange what their devices work on: neighbours along the pipeline, the ranks that use a tied table, the replicas of a
// stage. A pure function of the plan, the same on every rank: what NcclCommunicator::Create connects.
#pragma once

#include <vector>

#include "pipeline/pipeline_plan.h"
#include "runtime/comm/nccl_communicator.h"

namespace hadal {

// Of world ranks, each pair once, first < second.
std::vector<RankPair> TransferPairs(const ModelPlan& plan, const PipelinePlan& pipeline);

}  // namespace hadal
