// What ranks must have in common before a job: one program, and one instruction set, for the same bits in every layout.
//
//   program           the same file on all ranks, or an error: ranks of different ones do not speak one language
//   settings          the same on all ranks, or an error: a config of one node's own disk would train another model
//                     there, without a word
//   GPU               people are told where they differ: nothing there can be made alike
//   instruction set   the widest that all ranks have, on all of them; where that is narrower than some rank's own,
//                     people are told
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/instruction_set.h"
#include "launch/world.h"
#include "runtime/comm/collectives.h"
#include "tools/doctor/doctor_facts.h"

namespace hadal {

struct RankAgreement {
  InstructionSets instruction_sets = 0;  // that all ranks have
  std::string notice;                    // a sentence for people; empty where all ranks have the same
};

// Of all ranks' facts, in rank order.  REQUIRES: not empty.
// Errors: InvalidArgument, naming the ranks that run another program than rank 0; FailedPrecondition where nothing is
// common.
absl::StatusOr<RankAgreement> Agree(std::span<const RankFacts> ranks);

// Brings the ranks' facts together and makes this rank's kernels use what was agreed. Returns the notice on rank 0.
// Blocking: all ranks call it, before any kernel runs.  Errors: Agree's, the same on all ranks; UseInstructionSets';
// those of transfers.
absl::StatusOr<std::string> AgreeWithRanks(const World& world, Collectives& collectives);

// That all ranks were started alike: `start`, the command line's words, and the resolved config are rank 0's.
// Blocking: all ranks call it.  Errors: InvalidArgument, the same on all ranks, with the rank and what differs; those
// of transfers.
absl::Status AgreeOnSettings(const std::string& start, const std::string& config_text, Collectives& collectives);

// A sentence for people where ranks have GPUs of other kinds, or drivers, than rank 0: its products may sum in another
// order. Else "". `names`: Device::Name of all ranks.
std::string UnlikeDevices(std::span<const std::string> names);

}  // namespace hadal
