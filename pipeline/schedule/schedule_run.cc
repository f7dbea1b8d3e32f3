#include "pipeline/schedule/schedule_run.h"

#include <deque>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"

namespace hadal {
namespace {

class GreedyRun {
 public:
  GreedyRun(const std::vector<RankProgram>& programs, const ScheduleShape& shape, int outstanding_sends)
      : programs_(programs),
        shape_(shape),
        outstanding_sends_(outstanding_sends),
        channels_(NumberOfChannels(shape)),
        position_(shape.stages, 0),
        queued_(shape.stages, true) {
    for (int rank = 0; rank < shape.stages; ++rank) ready_.push_back(rank);
  }

  RunEnd Run(absl::FunctionRef<void(int, const Instruction&)> visit) {
    while (!ready_.empty()) {
      const int rank = ready_.front();
      ready_.pop_front();
      queued_[rank] = false;
      Advance(rank, visit);
    }
    RunEnd end{.finished = true, .position = position_};
    for (int rank = 0; rank < shape_.stages; ++rank) end.finished &= position_[rank] == std::ssize(programs_[rank]);
    return end;
  }

 private:
  struct ChannelState {
    int posted = 0;
    int received = 0;
  };

  // Runs `rank` until it blocks or ends.
  void Advance(int rank, absl::FunctionRef<void(int, const Instruction&)> visit) {
    const RankProgram& program = programs_[rank];
    for (int& at = position_[rank]; at < std::ssize(program); ++at) {
      const Instruction& instruction = program[at];
      if (IsSend(instruction.operation)) {
        const Channel channel = ChannelOf(shape_, rank, instruction);
        ChannelState& state = channels_[channel.number];
        if (state.posted - state.received >= outstanding_sends_) return;
        ++state.posted;
        Wake(channel.receiver, rank);
      } else if (IsReceive(instruction.operation)) {
        const Channel channel = ChannelOf(shape_, rank, instruction);
        ChannelState& state = channels_[channel.number];
        if (state.posted == state.received) return;
        ++state.received;
        Wake(channel.sender, rank);
      }
      visit(rank, instruction);
    }
  }

  void Wake(int rank, int running) {
    if (rank == running || queued_[rank]) return;
    queued_[rank] = true;
    ready_.push_back(rank);
  }

  const std::vector<RankProgram>& programs_;
  const ScheduleShape shape_;
  const int outstanding_sends_;
  std::vector<ChannelState> channels_;  // [2·(G-1)]
  std::vector<int> position_;           // [S]
  std::vector<bool> queued_;            // [S] whether the rank is in ready_
  std::deque<int> ready_;
};

}  // namespace

RunEnd RunSchedule(const std::vector<RankProgram>& programs, const ScheduleShape& shape, int outstanding_sends,
                   absl::FunctionRef<void(int, const Instruction&)> visit) {
  HADAL_CHECK_EQ(std::ssize(programs), shape.stages);
  HADAL_CHECK_GE(outstanding_sends, 1);
  return GreedyRun(programs, shape, outstanding_sends).Run(visit);
}

std::string DescribeDeadlock(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                             int outstanding_sends, const RunEnd& end) {
  HADAL_CHECK(!end.finished);
  const auto instruction_of = [&](int rank) { return programs[rank][end.position[rank]]; };
  const auto waits_for = [&](int rank) {
    const Channel channel = ChannelOf(shape, rank, instruction_of(rank));
    return channel.sender == rank ? channel.receiver : channel.sender;
  };
  int rank = 0;
  while (end.position[rank] == std::ssize(programs[rank])) ++rank;
  // Every step goes to a blocked rank: a rank that had finished would have sent and received all that others wait for.
  // After S steps the walk is inside the cycle.
  for (int i = 0; i < shape.stages; ++i) rank = waits_for(rank);
  std::string text = absl::StrCat("deadlock with ", outstanding_sends, " outstanding send(s) a channel: ");
  const int first = rank;
  do {
    const Instruction instruction = instruction_of(rank);
    const bool sends = IsSend(instruction.operation);
    const int awaited = sends ? instruction.micro_batch - outstanding_sends : instruction.micro_batch;
    absl::StrAppend(&text, rank == first ? "" : "; ", "rank ", rank, " waits at instruction ", end.position[rank], ", ",
                    ToString(instruction), ", for rank ", waits_for(rank), " to ", sends ? "receive" : "send",
                    " micro-batch ", awaited);
    rank = waits_for(rank);
  } while (rank != first);
  return text;
}

}  // namespace hadal
