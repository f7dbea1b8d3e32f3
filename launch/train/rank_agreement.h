// Makes ranks agree before a job on what they must have in common for the same bits in every layout.
//
//   program           must be the same file on all ranks, else an error: different programs exchange different messages
//   settings          must be the same on all ranks, else an error: a config on one node's own disk would silently
//                     train another model there
//   GPU               a message to the user if they differ; nothing can be made equal
//   instruction set   all ranks use the widest that every rank has; a message if that is narrower than some rank's own
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/instruction_set.h"
#include "launch/job/world.h"
#include "runtime/comm/collectives.h"
#include "tools/doctor/doctor_facts.h"

namespace hadal {

struct RankAgreement {
  InstructionSets instruction_sets = 0;  // those that all ranks have
  std::string notice;                    // for the user; empty if all ranks have the same
};

// Agrees on all ranks' facts, given in rank order.  REQUIRES: not empty.
// Errors: InvalidArgument, naming the ranks that run another program than rank 0; FailedPrecondition if no instruction
// set is common.
absl::StatusOr<RankAgreement> Agree(std::span<const RankFacts> ranks);

// All-gathers the ranks' facts and makes this rank's kernels use the agreed instruction set. Returns the notice on rank
// 0.
// Blocking: all ranks call it, before any kernel runs.  Errors: Agree's, the same on all ranks; UseInstructionSets';
// those of Communicator::Wait.
absl::StatusOr<std::string> AgreeWithRanks(const World& world, Collectives& collectives);

// Checks that all ranks were started alike: `start` (the words of the command line) and the resolved config are rank
// 0's.
// Blocking: all ranks call it.  Errors: InvalidArgument, the same on all ranks, with the rank and what differs; those
// of Communicator::Wait.
absl::Status AgreeOnSettings(const std::string& start, const std::string& config_text, Collectives& collectives);

}  // namespace hadal
