#include "pipeline/schedule/schedule_replay.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "pipeline/schedule/schedule_check.h"
#include "pipeline/schedule/schedule_run.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

absl::Status CheckCosts(const ReplayCosts& costs, const ScheduleShape& shape) {
  const auto usable = [](double seconds) { return std::isfinite(seconds) && seconds >= 0; };
  for (const auto* seconds : {&costs.forward_seconds, &costs.backward_seconds}) {
    if (std::ssize(*seconds) != shape.global_chunks() || !std::all_of(seconds->begin(), seconds->end(), usable)) {
      return InvalidArgumentError("a replay needs ", shape.global_chunks(),
                                  " forward and backward costs (stages × chunks), finite and ≥ 0; got ",
                                  costs.forward_seconds.size(), " and ", costs.backward_seconds.size());
    }
  }
  bool weights_usable = costs.weight_seconds.empty() || std::ssize(costs.weight_seconds) == shape.global_chunks();
  for (size_t g = 0; weights_usable && g < costs.weight_seconds.size(); ++g) {
    weights_usable = usable(costs.weight_seconds[g]) && costs.weight_seconds[g] <= costs.backward_seconds[g];
  }
  if (!weights_usable) {
    return InvalidArgumentError("a replay needs ", shape.global_chunks(),
                                " costs of weight halves, each ≥ 0 and at most its backward's, or none; got ",
                                costs.weight_seconds.size());
  }
  const int borders = shape.global_chunks() - 1;
  const bool links_usable = std::all_of(costs.links.begin(), costs.links.end(), [&](const LinkCost& link) {
    return usable(link.held_seconds) && usable(link.latency_seconds) && usable(link.backward_held_seconds.value_or(0));
  });
  if ((!costs.links.empty() && std::ssize(costs.links) != borders) || !links_usable) {
    return InvalidArgumentError("a replay needs ", borders,
                                " link costs (borders between chunks), finite and ≥ 0, or none; got ",
                                costs.links.size());
  }
  if (!usable(costs.gap_seconds)) {
    return InvalidArgumentError("a replay needs a gap that is finite and ≥ 0; got ", costs.gap_seconds);
  }
  return absl::OkStatus();
}

// Keeps each rank's clock and each message's times while the greedy run visits instructions.
class Clockwork {
 public:
  Clockwork(const ScheduleShape& shape, const ReplayCosts& costs, int outstanding_sends)
      : shape_(shape),
        costs_(costs),
        outstanding_sends_(outstanding_sends),
        clock_(shape.stages, 0.0),
        host_(shape.stages, 0.0),
        input_(shape.stages, 0.0),
        link_free_(2 * shape.stages, 0.0) {
    const size_t messages = static_cast<size_t>(NumberOfChannels(shape)) * shape.micro_batches;
    arrival_.resize(messages);
    received_.resize(messages);
    replay_.busy_seconds.assign(shape.stages, 0.0);
    replay_.blocked_seconds.assign(shape.stages, 0.0);
    replay_.link_busy_seconds.assign(2 * shape.stages, 0.0);
    replay_.spans.resize(shape.stages);
  }

  void Visit(int rank, const Instruction& instruction) {
    if (IsTail(instruction.operation)) return;
    if (IsSend(instruction.operation)) return Send(rank, instruction);
    if (IsReceive(instruction.operation)) return Receive(rank, instruction);
    const double seconds = Seconds(instruction.operation, shape_.GlobalChunk(rank, instruction.chunk));
    host_[rank] = std::max(host_[rank], input_[rank]) + costs_.gap_seconds;
    clock_[rank] = std::max(clock_[rank], host_[rank]);
    replay_.spans[rank].push_back({instruction, clock_[rank], clock_[rank] + seconds});
    replay_.busy_seconds[rank] += seconds;
    clock_[rank] += seconds;
    replay_.makespan_seconds = std::max(replay_.makespan_seconds, clock_[rank]);
  }

  Replay TakeReplay() && { return std::move(replay_); }

 private:
  double Seconds(Operation operation, int global_chunk) const {
    if (operation == Operation::kForward) return costs_.forward_seconds[global_chunk];
    const double backward = costs_.backward_seconds[global_chunk];
    if (operation == Operation::kBackward) return backward;
    const double weight = costs_.weight_seconds.empty() ? kWeightShare * backward : costs_.weight_seconds[global_chunk];
    return operation == Operation::kBackwardWeight ? weight : backward - weight;
  }

  void Send(int rank, const Instruction& instruction) {
    const Channel channel = ChannelOf(shape_, rank, instruction);
    const size_t message = Message(channel, instruction.micro_batch);
    if (instruction.micro_batch >= outstanding_sends_) {
      const double free = received_[message - outstanding_sends_];
      replay_.blocked_seconds[rank] += std::max(0.0, free - clock_[rank]);
      clock_[rank] = std::max(clock_[rank], free);
      host_[rank] = std::max(host_[rank], free);
    }
    arrival_[message] = clock_[rank];
    if (channel.sender == channel.receiver) return;
    const LinkCost cost = costs_.links.empty() ? LinkCost() : costs_.links[channel.number / 2];
    const int link = 2 * rank + (channel.receiver == (rank + 1) % shape_.stages ? 0 : 1);
    const bool backward = instruction.operation == Operation::kSendBackward;
    const double held = backward ? cost.backward_held_seconds.value_or(cost.held_seconds) : cost.held_seconds;
    link_free_[link] = std::max(clock_[rank], link_free_[link]) + held;
    replay_.link_busy_seconds[link] += held;
    arrival_[message] = link_free_[link] + cost.latency_seconds;
  }

  void Receive(int rank, const Instruction& instruction) {
    const Channel channel = ChannelOf(shape_, rank, instruction);
    const size_t message = Message(channel, instruction.micro_batch);
    if (channel.sender != channel.receiver) input_[rank] = std::max(input_[rank], arrival_[message]);
    clock_[rank] = std::max(clock_[rank], arrival_[message]);
    received_[message] = clock_[rank];
  }

  size_t Message(const Channel& channel, int micro_batch) const {
    return static_cast<size_t>(channel.number) * shape_.micro_batches + micro_batch;
  }

  const ScheduleShape shape_;
  const ReplayCosts& costs_;
  const int outstanding_sends_;
  std::vector<double> clock_;      // [S] of the device
  std::vector<double> host_;       // [S] when the host has launched what the device runs last
  std::vector<double> input_;      // [S] when the last message from another rank arrived
  std::vector<double> link_free_;  // [2·S] when a link has carried what was posted on it
  std::vector<double> arrival_;    // [2·(G-1), M]
  std::vector<double> received_;   // [2·(G-1), M]
  Replay replay_;
};

}  // namespace

ReplayCosts EqualCosts(const ScheduleShape& shape, double forward_seconds, double backward_seconds) {
  return {.forward_seconds = std::vector<double>(shape.global_chunks(), forward_seconds),
          .backward_seconds = std::vector<double>(shape.global_chunks(), backward_seconds)};
}

double Replay::BubbleFraction() const {
  const double all = makespan_seconds * static_cast<double>(busy_seconds.size());
  return all > 0 ? 1.0 - std::accumulate(busy_seconds.begin(), busy_seconds.end(), 0.0) / all : 0.0;
}

absl::StatusOr<Replay> ReplaySchedule(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                                      const ReplayCosts& costs, const ReplayOptions& options) {
  HADAL_RETURN_IF_ERROR(
      CheckSchedule(programs, shape,
                    {.outstanding_sends = options.outstanding_sends, .forward_only = options.forward_only})
          .status());
  HADAL_RETURN_IF_ERROR(CheckCosts(costs, shape));
  Clockwork clockwork(shape, costs, options.outstanding_sends);
  RunSchedule(programs, shape, options.outstanding_sends,
              [&](int rank, const Instruction& instruction) { clockwork.Visit(rank, instruction); });
  return std::move(clockwork).TakeReplay();
}

std::optional<double> AnalyticBubbleFraction(ScheduleKind kind, const ScheduleShape& shape) {
  if (SplitsBackward(kind)) return std::nullopt;
  if (!RunsSeveralChunks(kind) && shape.chunks != 1) return std::nullopt;
  if (shape.chunks != 1 && shape.micro_batches % shape.stages != 0) return std::nullopt;
  const double fill = shape.stages - 1;
  return fill / (static_cast<double>(shape.chunks) * shape.micro_batches + fill);
}

}  // namespace hadal
