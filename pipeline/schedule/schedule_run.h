// Executes all ranks' programs (lists of instructions, schedule.h) in one greedy run on an abstract machine. The
// checker and the replay are built on it.
//
// The machine: each rank executes its program in order. Compute and the tail never block. For message i of a channel
// (micro-batch i):
//   send i      waits until fewer than `outstanding_sends` of the channel's earlier messages are unreceived, then
//               posts;
//   receive i   waits until send i is posted, and takes the message.
// A message completes only when its receive instruction is reached; only the outstanding sends are buffered. That is
// stricter than the engine, which posts receives early.
// Why one run is a proof: every channel has one sender and one receiver, and what an instruction waits for (a count
// reaching a number) stays true once it is true. So progress of one rank never disables an instruction of another, the
// order in which ranks are tried does not matter, and every maximal run ends in the same state (Kahn 1974, "The
// semantics of a simple language for parallel programming"). If this run finishes all programs, every run does, at any
// speed of any rank.
//
// REQUIRES (of all): programs are well formed as schedule_check.h says, so that message i of a channel is micro-batch
// i. Threads: pure. Blocking: none. Time: O(instructions).
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "pipeline/schedule/schedule.h"

namespace hadal {

struct RunEnd {
  bool finished = false;
  // [S] Instructions that each rank has executed: the index of a blocked rank's next instruction.
  std::vector<int> position;
};

// Executes until no rank can proceed. Calls `visit(rank, instruction)` for each executed instruction, in an order in
// which a send comes before its receive, and a receive before a send that waited for it.
RunEnd RunSchedule(const std::vector<RankProgram>& programs, const ScheduleShape& shape, int outstanding_sends,
                   absl::FunctionRef<void(int, const Instruction&)> visit);

// Explains a deadlock: follows "waits for" from the first blocked rank to a cycle and names each rank in it, its
// instruction and the rank it waits for.  REQUIRES: `end` is RunSchedule's result for the same arguments, not finished.
std::string DescribeDeadlock(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                             int outstanding_sends, const RunEnd& end);

}  // namespace hadal
