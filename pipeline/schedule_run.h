// One greedy run of all ranks' programs: the machine under the checker and the replay.
//
// The machine: each rank executes its program in order. Compute and the tail never block. Message i of a channel
// (micro-batch i):
//   send i      waits until fewer than `outstanding_sends` of the channel's earlier messages are unreceived, then
//               posts;
//   receive i   waits until send i is posted, and takes the message.
// A message completes only when the receive instruction is reached: no buffering is counted on beyond the outstanding
// sends, which is stricter than the engine, whose receives are posted early.
//
// Why one run is a proof: every channel has one sender and one receiver, and what an instruction waits for (a count
// reaching a number) stays true once it is true. So an instruction that can run can never be disabled by another rank's
// progress, the order in which ranks are tried does not matter, and every maximal run ends in the same place (Kahn
// 1974, "The semantics of a simple language for parallel programming"). If this one ends with all programs finished,
// all do, at any speed of any rank.
//
// REQUIRES (of all): programs are well formed as schedule_check.h says, so that message i of a channel is micro-batch
// i. Threads: pure. Blocking: none. Time: O(instructions).
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "pipeline/schedule.h"

namespace hadal {

struct RunEnd {
  bool finished = false;
  // [S] instructions each rank executed; a blocked rank's next instruction is at its position.
  std::vector<int> position;
};

// Executes until nothing can move. `visit(rank, instruction)` is called on execution: a send's visit comes before its
// receive's, and a receive's before that of the send which waited for it.
RunEnd RunSchedule(const std::vector<RankProgram>& programs, const ScheduleShape& shape, int outstanding_sends,
                   absl::FunctionRef<void(int, const Instruction&)> visit);

// Why nobody moves: follows "waits for" from the first blocked rank to a cycle and names each rank in it, its
// instruction and whom it waits for.  REQUIRES: !end.finished, of the same arguments.
std::string DescribeDeadlock(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                             int outstanding_sends, const RunEnd& end);

}  // namespace hadal
