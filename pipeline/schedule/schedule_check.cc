#include "pipeline/schedule/schedule_check.h"

#include <algorithm>
#include <array>
#include <deque>

#include "pipeline/schedule/schedule_run.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// How often each operation that has a micro-batch has run on a chunk; since they ascend, also the next micro-batch. An
// input half counts as a backward, a whole backward as both halves.
constexpr int kCounted = static_cast<int>(Operation::kReduceTiedGradients);

class RankChecker {
 public:
  RankChecker(const RankProgram& program, const ScheduleShape& shape, int rank, const ScheduleCheckOptions& options)
      : program_(program),
        shape_(shape),
        rank_(rank),
        options_(options),
        done_(shape.chunks),
        live_(shape.chunks),
        input_(shape.chunks) {}

  absl::Status Check() {
    for (at_ = 0; at_ < program_.size(); ++at_) {
      const Operation operation = program_[at_].operation;
      HADAL_RETURN_IF_ERROR(IsTail(operation) ? CheckTail() : CheckMicroBatch());
      if (!IsTail(operation)) CountLive();
    }
    return CheckComplete();
  }

  // Adds this rank's peaks.
  void AddTo(ScheduleReport& report) const {
    const auto peaks = [](const std::vector<Level>& levels) {
      std::vector<int> all;
      all.reserve(levels.size());
      for (const Level& level : levels) all.push_back(level.peak);
      return all;
    };
    report.peak_live.push_back(peaks(live_));
    report.peak_input.push_back(peaks(input_));
    report.peak_live_of_rank.push_back(live_of_rank_.peak);
    report.peak_pending.push_back(peak_pending_);
  }

 private:
  // A number that rises and falls.
  struct Level {
    int now = 0, peak = 0;
    void Rise() { peak = std::max(peak, ++now); }
  };

  template <typename... Text>
  absl::Status Malformed(const Text&... text) const {
    return InvalidArgumentError("rank ", rank_, ", instruction ", at_, ", ", ToString(program_[at_]), ": ", text...);
  }

  static bool MakesInputGradient(Operation operation) {
    return operation == Operation::kBackward || operation == Operation::kBackwardInput;
  }
  static size_t CountOf(Operation operation) {
    return static_cast<size_t>(MakesInputGradient(operation) ? Operation::kBackward : operation);
  }
  int Done(Operation operation, int chunk) const { return done_[chunk][CountOf(operation)]; }

  // Whether a training or forward-only program has this operation on this chunk.
  bool Exists(Operation operation, int chunk) const {
    const bool first = shape_.IsFirst(rank_, chunk);
    const bool last = shape_.IsLast(rank_, chunk);
    switch (operation) {
      case Operation::kReceiveForward:
        return !first;
      case Operation::kForward:
        return true;
      case Operation::kSendForward:
        return !last;
      case Operation::kReceiveBackward:
        return !options_.forward_only && !last;
      case Operation::kBackward:
      case Operation::kBackwardInput:
      case Operation::kBackwardWeight:
        return !options_.forward_only;
      case Operation::kSendBackward:
        return !options_.forward_only && !first;
      default:
        return false;
    }
  }

  absl::Status CheckMicroBatch() {
    const auto [operation, chunk, micro_batch] = program_[at_];
    if (tail_done_ > 0) return Malformed("comes after the step's tail has begun");
    if (chunk < 0 || chunk >= shape_.chunks) return Malformed("there are ", shape_.chunks, " chunks a rank");
    if (micro_batch < 0 || micro_batch >= shape_.micro_batches) {
      return Malformed("there are ", shape_.micro_batches, " micro-batches");
    }
    if (!Exists(operation, chunk)) {
      if (options_.forward_only && operation >= Operation::kReceiveBackward) {
        return Malformed("a forward-only program has no backward");
      }
      return Malformed("global chunk ", shape_.GlobalChunk(rank_, chunk), " of ", shape_.global_chunks(),
                       " has no neighbour on that side");
    }
    const int done = Done(operation, chunk);
    if (micro_batch < done) return Malformed("has run before, or out of order; micro-batch ", done, " is next");
    if (micro_batch > done) return Malformed("out of ascending order; micro-batch ", done, " is next");
    HADAL_RETURN_IF_ERROR(CheckInputs());
    ++done_[chunk][CountOf(operation)];
    if (operation == Operation::kBackward) ++done_[chunk][CountOf(Operation::kBackwardWeight)];
    return absl::OkStatus();
  }

  // What must, and what must not yet, have happened before the current instruction.
  absl::Status CheckInputs() const {
    const auto [operation, chunk, micro_batch] = program_[at_];
    const auto check_done = [&, chunk = chunk, micro_batch = micro_batch](Operation needed) {
      if (!Exists(needed, chunk) || Done(needed, chunk) > micro_batch) return absl::OkStatus();
      return Malformed("comes before ", ToString(Instruction{needed, chunk, micro_batch}));
    };
    switch (operation) {
      case Operation::kReceiveForward:
        return CheckRing(Operation::kReceiveForward, Operation::kForward);
      case Operation::kForward:
        HADAL_RETURN_IF_ERROR(check_done(Operation::kReceiveForward));
        return CheckOutputFree(Operation::kForward, Operation::kSendForward);
      case Operation::kSendForward:
        return check_done(Operation::kForward);
      case Operation::kReceiveBackward:
        return CheckRing(Operation::kReceiveBackward, Operation::kBackward);
      case Operation::kBackward:
      case Operation::kBackwardInput:
        HADAL_RETURN_IF_ERROR(check_done(Operation::kForward));
        HADAL_RETURN_IF_ERROR(check_done(Operation::kReceiveBackward));
        if (operation == Operation::kBackward) HADAL_RETURN_IF_ERROR(CheckOldestPending());
        return CheckOutputFree(operation, Operation::kSendBackward);
      case Operation::kSendBackward:
        return check_done(Operation::kBackward);
      case Operation::kBackwardWeight:
        HADAL_RETURN_IF_ERROR(check_done(Operation::kBackwardInput));
        return CheckOldestPending();
      default:
        return absl::OkStatus();
    }
  }

  // The oldest pending weight half of the rank goes before other weight halves, and before whole backwards.
  absl::Status CheckOldestPending() const {
    const Instruction& now = program_[at_];
    if (pending_.empty() || pending_.front() == now) return absl::OkStatus();
    return Malformed("comes before ", ToString(pending_.front()), ", which has waited longer");
  }

  absl::Status CheckRing(Operation receive, Operation use) const {
    const int chunk = program_[at_].chunk;
    const int unused = Done(receive, chunk) - Done(use, chunk);
    if (unused < options_.outstanding_sends) return absl::OkStatus();
    return ResourceExhaustedError("rank ", rank_, ", instruction ", at_, ", ", ToString(program_[at_]),
                                  ": overrun: ", unused,
                                  " received input(s) are not used yet and the channel's receive ring has ",
                                  options_.outstanding_sends, "; receive later, or allow more outstanding sends");
  }

  absl::Status CheckOutputFree(Operation compute, Operation send) const {
    const int chunk = program_[at_].chunk;
    if (!Exists(send, chunk) || Done(send, chunk) == Done(compute, chunk)) return absl::OkStatus();
    return Malformed("overwrites an output that is not sent: ", ToString(Instruction{send, chunk, Done(send, chunk)}),
                     " must come first");
  }

  absl::Status CheckTail() {
    if (options_.forward_only) return Malformed("a forward-only program has no tail");
    const int number = static_cast<int>(program_[at_].operation) - static_cast<int>(Operation::kReduceTiedGradients);
    if (number != tail_done_) return Malformed("the step's tail is out of order or runs twice");
    ++tail_done_;
    return absl::OkStatus();
  }

  absl::Status CheckComplete() const {
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
      for (int i = 0; i < kCounted; ++i) {
        const auto operation = static_cast<Operation>(i);
        if (!Exists(operation, chunk) || Done(operation, chunk) == shape_.micro_batches) continue;
        return InvalidArgumentError("rank ", rank_, " never runs ",
                                    ToString(Instruction{operation, chunk, Done(operation, chunk)}));
      }
    }
    if (!options_.forward_only && tail_done_ != kTailOperations) {
      const int first = static_cast<int>(Operation::kReduceTiedGradients);
      return InvalidArgumentError("rank ", rank_, " never runs ",
                                  ToString(Instruction{.operation = static_cast<Operation>(first + tail_done_)}));
    }
    return absl::OkStatus();
  }

  // Counts what the current instruction makes live or ends.
  void CountLive() {
    const int chunk = program_[at_].chunk;
    const Operation operation = program_[at_].operation;
    const Operation begins =
        Exists(Operation::kReceiveForward, chunk) ? Operation::kReceiveForward : Operation::kForward;
    const Operation forward_ends =
        Exists(Operation::kSendForward, chunk) ? Operation::kSendForward : Operation::kForward;
    if (operation == begins) {
      live_[chunk].Rise();
      input_[chunk].Rise();
      live_of_rank_.Rise();
    }
    if (options_.forward_only ? operation == forward_ends : MakesInputGradient(operation)) --input_[chunk].now;
    if (options_.forward_only ? operation == forward_ends : EndsBackward(operation)) {
      --live_[chunk].now;
      --live_of_rank_.now;
    }
    if (operation == Operation::kBackwardInput) {
      pending_.push_back({Operation::kBackwardWeight, chunk, program_[at_].micro_batch});
      peak_pending_ = std::max(peak_pending_, static_cast<int>(pending_.size()));
    }
    if (operation == Operation::kBackwardWeight) pending_.pop_front();
  }

  const RankProgram& program_;
  const ScheduleShape shape_;
  const int rank_;
  const ScheduleCheckOptions& options_;
  size_t at_ = 0;
  std::vector<std::array<int, kCounted>> done_;  // [v]
  std::vector<Level> live_, input_;              // [v]
  Level live_of_rank_;
  std::deque<Instruction> pending_;  // weight halves
  int peak_pending_ = 0;
  int tail_done_ = 0;
};

absl::Status CheckArguments(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                            const ScheduleCheckOptions& options) {
  if (shape.stages < 1 || shape.chunks < 1 || shape.micro_batches < 1 || std::ssize(programs) != shape.stages) {
    return InvalidArgumentError(programs.size(), " programs do not fit ", shape.stages, " stages, ", shape.chunks,
                                " chunks and ", shape.micro_batches,
                                " micro-batches; a schedule has one program a stage");
  }
  if (options.outstanding_sends < 1) {
    return InvalidArgumentError("outstanding sends a channel: ", options.outstanding_sends, "; at least 1 is needed");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ScheduleReport> CheckSchedule(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                                             const ScheduleCheckOptions& options) {
  HADAL_RETURN_IF_ERROR(CheckArguments(programs, shape, options));
  ScheduleReport report;
  for (int rank = 0; rank < shape.stages; ++rank) {
    RankChecker checker(programs[rank], shape, rank, options);
    HADAL_RETURN_IF_ERROR(checker.Check());
    checker.AddTo(report);
  }
  const RunEnd end = RunSchedule(programs, shape, options.outstanding_sends, [](int, const Instruction&) {});
  if (!end.finished) return FailedPreconditionError(DescribeDeadlock(programs, shape, options.outstanding_sends, end));
  return report;
}

}  // namespace hadal
