// Maps the ranks of a training run to S pipeline stages times R replicas, and gives each rank its two communicators.
//
//   world rank = stage·R + replica        Placement::kReplicasTogether: replicas of a stage are neighbours
//   world rank = replica·S + stage        Placement::kStagesTogether: stages of a replica are neighbours
//
// Launchers place consecutive ranks on one host. The replicas of a stage exchange whole gradients and weights every
// step; stages exchange a border's activations for every micro-batch. Which of them should share a host depends on the
// model and the links. The placement changes no bit.
// One replica's pipeline and one stage's replicas are separate communicators (group_communicator.h). They share no pair
// of different ranks, so their tags cannot collide.
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
  std::optional<GroupCommunicator> pipeline_;  // none with one replica, whose pipeline is the world
  GroupCommunicator replicas_;
};

}  // namespace hadal
