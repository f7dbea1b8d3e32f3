// How the ranks of a training run are divided into S pipeline stages times R replicas.
//
//   world rank = stage·R + replica        Placement::kReplicasTogether: replicas of a stage are neighbours
//   world rank = replica·S + stage        Placement::kStagesTogether: stages of a replica are neighbours
//
// Launchers place consecutive ranks on one host. The replicas of a stage exchange whole gradients and weights every
// step; neighbouring stages exchange activations for every micro-batch. Whether replicas or stages should share a host
// depends on the model and the links. The placement changes no bit.
#pragma once

#include <cstdint>

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

}  // namespace hadal
