// Who is who among the ranks of a training run: S stages of a pipeline times R replicas of it.
//
//   world rank = stage·R + replica        Placement::kReplicasTogether: replicas of a stage are neighbours
//   world rank = replica·S + stage        Placement::kStagesTogether: stages of a replica are neighbours
//
// Launchers fill a host with consecutive ranks. The replicas of a stage exchange whole gradients and weights every
// step, stages a border's activations for every micro-batch: which of them should share a host depends on the model and
// on the links. It changes no bit.
// The pipeline of one replica and the replicas of one stage are communicators of their own (group_communicator.h); they
// share no pair of different ranks, so that their tags cannot meet.
// Threads: those of the communicators. Blocking: none.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/comm/communicator.h"
#include "runtime/comm/group_communicator.h"

namespace hadal {

enum class Placement : int32_t { kReplicasTogether, kStagesTogether };

struct GridShape {
  int stages = 1;    // S
  int replicas = 1;  // R
  Placement placement = Placement::kReplicasTogether;

  int ranks() const { return stages * replicas; }
  int RankOf(int stage, int replica) const {
    return placement == Placement::kReplicasTogether ? stage * replicas + replica : replica * stages + stage;
  }
  int StageOf(int rank) const { return placement == Placement::kReplicasTogether ? rank / replicas : rank % stages; }
  int ReplicaOf(int rank) const { return placement == Placement::kReplicasTogether ? rank % replicas : rank / stages; }
};

class ProcessGrid {
 public:
  // `world` must outlive the grid.  REQUIRES: world.size() = shape.ranks().
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
  std::optional<GroupCommunicator> pipeline_;  // none: one replica, whose pipeline is the world
  GroupCommunicator replicas_;
};

}  // namespace hadal
