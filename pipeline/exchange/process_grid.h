// ProcessGrid gives each rank of a training run two communicators: one of the stages of its replica (its pipeline), one
// of the replicas of its stage.
//
// Both are group communicators (group_communicator.h) whose parent is the world communicator; with one replica the
// pipeline is the world communicator itself. No pair of ranks is in both groups, so their tags cannot collide.
// Threads: as the communicators. Blocking: none.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/options/grid_shape.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/group_communicator.h"
#include "runtime/comm/nccl_groups.h"

namespace hadal {

class ProcessGrid {
 public:
  // `world` must outlive the grid. REQUIRES: world.size() = shape.ranks().
  ProcessGrid(Communicator& world, const GridShape& shape);
  ProcessGrid(const ProcessGrid&) = delete;
  ProcessGrid& operator=(const ProcessGrid&) = delete;

  int stage() const { return shape_.StageOf(world_.rank()); }
  int replica() const { return shape_.ReplicaOf(world_.rank()); }

  Communicator& world() { return world_; }
  // The stages of this rank's replica: rank = stage, size = S.
  Communicator& pipeline() { return pipeline_ ? *pipeline_ : world_; }
  // The replicas of this rank's stage: rank = replica, size = R.
  Communicator& replicas() { return replicas_; }

 private:
  Communicator& world_;
  GridShape shape_;
  std::optional<GroupCommunicator> pipeline_;  // none with one replica, whose pipeline is the world
  GroupCommunicator replicas_;
};

// Lists which ranks exchange device memory, in groups for NcclCommunicator::Create: the stages of each replica, for
// messages (pairs: neighbours in the pipeline, and the owner of a tied table with each rank that uses it), and the
// replicas of each stage, for exchanges. So a rank is in at most two groups and has at most three links (two
// directions of messages, and exchanges; runtime/comm/nccl_link.h), for every number of stages, replicas and chunks. A
// pure function, the same on every rank. Ranks are world ranks; groups without pairs are omitted.
std::vector<TransferGroup> TransferGroups(const ModelPlan& plan, const PipelineLayout& pipeline);

// Returns the most NCCL connections of any rank: one per direction for each pair of `groups` that contains the rank;
// two in an exchange of more than two ranks, which has up to kMostExchangeBlocks channels (nccl_link.h), not four.
int MostConnections(std::span<const TransferGroup> groups);

}  // namespace hadal
