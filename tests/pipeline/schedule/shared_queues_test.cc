// Which streams of a rank must not share a hardware queue of the GPU: every schedule is run on an abstract machine on
// which two of them do, on every rank, and the pairs with which it hangs are listed. That is what
// runtime/comm/nccl_communicator.md assumes and why a run over NCCL needs 32 hardware queues.
//
// The machine: each link (messages to higher ranks; to lower ranks) has a stream of its own and one of NCCL's, in which
// something waits for each message, and for which the link's next message waits; the main stream has the kernels. Items
// of one hardware queue run one after another.
// A message runs once both sides are first in their queues. A send is offered once the kernels before it are done; its
// receive is started first, by the rules of nccl_communicator.md. What goes on next, a host, a device or a message, is
// drawn at random.
#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <utility>

#include "gmock/gmock.h"
#include "pipeline/schedule/schedule.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

enum Stream { kMain, kUp, kUpOfNccl, kDown, kDownOfNccl, kStreams };
using Pair = std::pair<Stream, Stream>;

struct Message {
  int sender = 0, receiver = 0;
  int64_t after_kernels = 0;  // of the sender
  bool sent = false, received = false, done = false;

  Stream link() const { return sender < receiver ? kUp : kDown; }
  Stream of_nccl() const { return sender < receiver ? kUpOfNccl : kDownOfNccl; }
};

class Machine {
 public:
  // `shared`: the streams that share a queue.
  Machine(std::vector<RankProgram> programs, const ScheduleShape& shape, Pair shared, uint64_t seed)
      : programs_(std::move(programs)), shape_(shape), shared_(shared), random_(seed), ranks_(shape.stages) {}

  // Whether all programs end.
  bool Run() {
    const int moves = 4 * shape_.stages;
    for (int none = 0; none < moves;) {
      const int first = static_cast<int>(random_() % moves);
      for (none = 0; none < moves && !Move((first + none) % moves); ++none) continue;
    }
    return std::all_of(ranks_.begin(), ranks_.end(), [this](const Rank& rank) {
      return rank.position == std::ssize(programs_[&rank - ranks_.data()]);
    });
  }

 private:
  static constexpr int kOutstandingSends = 2;
  static constexpr Message* kKernel = nullptr;
  using Queue = std::deque<Message*>;
  struct Rank {
    int64_t position = 0, kernels = 0, kernels_done = 0;
    Queue queues[kStreams];
    Queue granted;  // sends, in the order of the grants
  };

  Queue& QueueOf(int rank, Stream stream) {
    return ranks_[rank].queues[stream == shared_.second ? shared_.first : stream];
  }

  // Tries one of a rank's four moves. Returns whether something changed.
  bool Move(int move) {
    const int rank = move / 4;
    switch (move % 4) {
      case 0:
        return ranks_[rank].position < std::ssize(programs_[rank]) && Execute(rank);
      case 1:
        return EndItems(rank);
      case 2:
        return StartReceive(rank);
      default:
        return StartSend(rank);
    }
  }

  bool EndItems(int rank) {
    bool ended = false;
    for (Queue& queue : ranks_[rank].queues) {
      while (!queue.empty() && Ends(queue.front())) {
        ranks_[rank].kernels_done += queue.front() == kKernel;
        queue.pop_front();
        ended = true;
      }
    }
    return ended;
  }

  bool Ends(Message* item) {
    if (item == kKernel) return true;
    const auto is_first = [&](int rank) {
      const Queue &link = QueueOf(rank, item->link()), &of_nccl = QueueOf(rank, item->of_nccl());
      const auto next = std::find_if(of_nccl.begin(), of_nccl.end(),
                                     [item](const Message* m) { return m != kKernel && m->link() == item->link(); });
      return !link.empty() && link.front() == item && *next == item;
    };
    item->done |= item->sent && item->received && is_first(item->sender) && is_first(item->receiver);
    return item->done;
  }

  // The rank's next instruction; false: it has to wait.
  bool Execute(int rank) {
    const Instruction& next = programs_[rank][ranks_[rank].position];
    if (IsSend(next.operation)) {
      std::deque<Message>& channel = channels_[ChannelOf(shape_, rank, next).number];
      if (std::ssize(channel) >= kOutstandingSends && !channel[channel.size() - kOutstandingSends].done) return false;
      channel.push_back({rank, ChannelOf(shape_, rank, next).receiver, ranks_[rank].kernels});
    } else if (IsReceive(next.operation)) {
      const std::deque<Message>& channel = channels_[ChannelOf(shape_, rank, next).number];
      if (std::ssize(channel) <= next.micro_batch || !channel[next.micro_batch].done) return false;
    } else if (!IsTail(next.operation)) {
      QueueOf(rank, kMain).push_back(kKernel);
      ++ranks_[rank].kernels;
    }
    ++ranks_[rank].position;
    return true;
  }

  // An offered receive, unless the link receives from another peer.
  bool StartReceive(int rank) {
    for (auto& [number, channel] : channels_) {
      for (Message& message : channel) {
        if (message.receiver != rank || message.received || !MayStart(message)) continue;
        message.received = true;
        Put(rank, message);
        ranks_[message.sender].granted.push_back(&message);
        return true;
      }
    }
    return false;
  }

  bool MayStart(const Message& message) const {
    if (ranks_[message.sender].kernels_done < message.after_kernels) return false;
    for (const auto& [number, channel] : channels_) {
      for (const Message& other : channel) {
        const bool under_way = other.received && !other.done && other.receiver == message.receiver;
        if (under_way && other.link() == message.link() && other.sender != message.sender) return false;
      }
    }
    return true;
  }

  bool StartSend(int rank) {
    Queue& granted = ranks_[rank].granted;
    if (granted.empty()) return false;
    granted.front()->sent = true;
    Put(rank, *granted.front());
    granted.pop_front();
    return true;
  }

  void Put(int rank, Message& message) {
    QueueOf(rank, message.link()).push_back(&message);
    QueueOf(rank, message.of_nccl()).push_back(&message);
  }

  const std::vector<RankProgram> programs_;
  const ScheduleShape shape_;
  const Pair shared_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::map<int, std::deque<Message>> channels_;
};

// Pairs of streams with which the schedule hangs in one of the orders that are tried.
std::vector<Pair> MustNotShare(ScheduleKind kind, const ScheduleShape& shape) {
  constexpr uint64_t kOrders = 100;
  const auto programs = MakeSchedules(kind, shape);
  std::vector<Pair> pairs;
  for (int a = 0; a < kStreams; ++a) {
    for (int b = a; b < kStreams; ++b) {  // a == b: none shares
      const Pair pair(static_cast<Stream>(a), static_cast<Stream>(b));
      bool ends = true;
      for (uint64_t seed = 0; ends && seed < kOrders; ++seed) ends = Machine(*programs, shape, pair, seed).Run();
      if (!ends) pairs.push_back(pair);
    }
  }
  return pairs;
}

TEST(SharedQueues, WhereMessagesCrossTheLinksMustNotShare) {
  const ScheduleShape shape{.stages = 4, .micro_batches = 8};
  const ScheduleShape interleaved{.stages = 4, .chunks = 2, .micro_batches = 8};
  const auto links = UnorderedElementsAre(Pair(kUp, kDown), Pair(kUp, kDownOfNccl), Pair(kUpOfNccl, kDown),
                                          Pair(kUpOfNccl, kDownOfNccl));
  EXPECT_THAT(MustNotShare(ScheduleKind::k1F1B, shape), links);
  EXPECT_THAT(MustNotShare(ScheduleKind::kInterleaved1F1B, interleaved), links);
}

TEST(SharedQueues, FewMessagesCrossBetweenTwoRanksAndNoneInGpipe) {
  EXPECT_THAT(MustNotShare(ScheduleKind::k1F1B, {.stages = 2, .micro_batches = 4}), ElementsAre(Pair(kUp, kDown)));
  EXPECT_THAT(MustNotShare(ScheduleKind::kGpipe, {.stages = 4, .micro_batches = 8}), IsEmpty());
}

}  // namespace
}  // namespace hadal
