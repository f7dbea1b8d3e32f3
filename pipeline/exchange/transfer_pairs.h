// Lists which ranks exchange device memory: neighbours in the pipeline, the owner of a tied table with the ranks that
// use it, and the replicas of a stage. NcclCommunicator::Create connects these pairs. A pure function of the plan, the
// same on every rank.
#pragma once

#include <span>
#include <vector>

#include "pipeline/plan/pipeline_plan.h"
#include "runtime/comm/nccl_communicator.h"

namespace hadal {

// Pairs of world ranks, each once, with first < second.
std::vector<RankPair> TransferPairs(const ModelPlan& plan, const PipelinePlan& pipeline);

// The most links of any rank: two for each of its pairs, one per direction (runtime/comm/nccl_link.h).
int MostLinks(std::span<const RankPair> pairs);

}  // namespace hadal
