// Checks and selects the settings that all ranks of a job must share, so that results have the same bits in every
// layout.
//
//   program           must be the same file on all ranks, else an error: different programs exchange different messages
//   instruction set   each rank uses its own widest if every rank has fused multiply-adds: these give the same bits.
//                     Otherwise all use the widest that every rank has, with a message
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/instruction_set.h"
#include "launch/world.h"
#include "runtime/comm/collectives.h"
#include "runtime/rank_facts.h"

namespace hadal {

// Returns the facts of this rank (runtime/rank_facts.h).
RankFacts FactsOf(const World& world);

struct CommonProgram {
  InstructionSets instruction_sets = 0;  // for UseInstructionSets on every rank
  std::string notice;                    // for the user; empty if no rank is limited
};

// Compares all ranks' facts, given in rank order. Pure.  REQUIRES: not empty.
// Errors: InvalidArgument, naming the ranks that run another program than rank 0; Internal if the ranks have no
// instruction set in common.
absl::StatusOr<CommonProgram> CompareRanks(std::span<const RankFacts> ranks);

// Gathers and compares the ranks' facts and limits this rank's instruction set to the result. For commands
// whose ranks exchange nothing else when they start. Returns the notice on rank 0, "" on the others.
// Blocking: all ranks call it, before any kernel runs.  Errors: those of CompareRanks, the same on all ranks; those of
// Communicator::Wait.
absl::StatusOr<std::string> UseCommonProgram(const World& world, Collectives& collectives);

}  // namespace hadal
