// Lists which ranks exchange device memory, in groups for NcclCommunicator::Create: the stages of each replica
// (neighbours in the pipeline, and the owner of a tied table with the ranks that use it), for messages, and the
// replicas of each stage, for exchanges. So a rank is in at most two groups and has at most three links, for every
// number of stages, replicas and chunks. A pure function of the plan, the same on every rank.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "pipeline/layout/pipeline_layout.h"
#include "runtime/comm/nccl_communicator.h"

namespace hadal {

// World ranks; groups without pairs are left out.
std::vector<TransferGroup> TransferGroups(const ModelPlan& plan, const PipelineLayout& pipeline);

// The most connections of any rank: two for each of its pairs, one per direction.
int MostConnections(std::span<const TransferGroup> groups);

}  // namespace hadal
