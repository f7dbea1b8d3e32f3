#include "tests/runtime/comm/communicator_conformance.h"

#include <ostream>

#include "gmock/gmock.h"
#include "tests/runtime/comm/transfer_buffer.h"

namespace hadal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Far beyond what any case takes: only a hang meets it.
constexpr absl::Duration kHang = absl::Seconds(120);

// Each rank sends to `next` and receives from `previous`: a ring, which for one rank is a rank that talks to itself.
int Next(const Communicator& c) { return (c.rank() + 1) % c.size(); }
int Previous(const Communicator& c) { return (c.rank() + c.size() - 1) % c.size(); }

CommRequest PostSend(Communicator& c, const void* data, int64_t bytes, int peer, int tag) {
  absl::StatusOr<CommRequest> request = c.Send(data, bytes, peer, tag);
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? *request : CommRequest{};
}

CommRequest PostReceive(Communicator& c, void* data, int64_t bytes, int peer, int tag) {
  absl::StatusOr<CommRequest> request = c.Receive(data, bytes, peer, tag);
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? *request : CommRequest{};
}

// Waits and returns the number of bytes received (0 for a send, -1 after an error).
int64_t Finish(Communicator& c, CommRequest& request, const char* what) {
  if (!request.active()) return -1;
  int64_t bytes = 0;
  const absl::Status status = c.Wait(request, absl::Now() + kHang, what, &bytes);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(request.active(), !status.ok());
  return status.ok() ? bytes : -1;
}

std::vector<int32_t> Pattern(int64_t count, int seed) {
  std::vector<int32_t> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<int32_t>(i * 2654435761u + seed * 40503u);
  return values;
}

std::vector<int32_t> Empty(int64_t count) { return std::vector<int32_t>(count, -1); }

CommRequest PostSend(Communicator& c, const TransferBuffer& from, int peer, int tag) {
  return PostSend(c, from.data(), from.bytes(), peer, tag);
}
CommRequest PostReceive(Communicator& c, TransferBuffer& to, int peer, int tag) {
  return PostReceive(c, to.data(), to.bytes(), peer, tag);
}

// Exchanges `count` values around the ring, everybody at once.
void ExchangeAroundTheRing(Communicator& c, const Stream& memory, int64_t count) {
  const TransferBuffer mine(memory, Pattern(count, c.rank()));
  TransferBuffer theirs(memory, Empty(count));
  CommRequest received = PostReceive(c, theirs, Previous(c), 7);
  CommRequest sent = PostSend(c, mine, Next(c), 7);
  EXPECT_EQ(Finish(c, received, "the ring's receive"), mine.bytes());
  Finish(c, sent, "the ring's send");
  EXPECT_EQ(theirs.values(), Pattern(count, Previous(c)));
}

void Small(Communicator& c, const Stream& memory) { ExchangeAroundTheRing(c, memory, 1); }
void EightMebibytes(Communicator& c, const Stream& memory) { ExchangeAroundTheRing(c, memory, 2 << 20); }

void ZeroBytes(Communicator& c, const Stream& /*memory*/) {
  CommRequest received = PostReceive(c, nullptr, 0, Previous(c), 0);
  CommRequest sent = PostSend(c, nullptr, 0, Next(c), 0);
  EXPECT_EQ(Finish(c, received, "an empty message"), 0);
  Finish(c, sent, "an empty message");
}

void ReportsTheLengthOfAShorterMessage(Communicator& c, const Stream& memory) {
  const TransferBuffer mine(memory, Pattern(10 + c.rank(), c.rank()));
  TransferBuffer theirs(memory, Empty(1000));
  CommRequest received = PostReceive(c, theirs, Previous(c), 1);
  CommRequest sent = PostSend(c, mine, Next(c), 1);
  const std::vector<int32_t> expected = Pattern(10 + Previous(c), Previous(c));
  EXPECT_EQ(Finish(c, received, "a shorter message"), static_cast<int64_t>(expected.size() * sizeof(int32_t)));
  Finish(c, sent, "a shorter message");
  const std::vector<int32_t> values = theirs.values();
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), values.begin()));
  EXPECT_EQ(values[expected.size()], -1) << "wrote beyond the message";
}

// Messages of alternating size, so that a transport with two paths (eager, rendezvous) cannot let one overtake the
// other.
void OrderWithinATag(Communicator& c, const Stream& memory) {
  constexpr int kMessages = 40;
  std::vector<TransferBuffer> mine, theirs;
  std::vector<CommRequest> sent, received;
  for (int i = 0; i < kMessages; ++i) {
    const int64_t count = i % 2 == 0 ? 5 : 50000;
    mine.emplace_back(memory, Pattern(count, 1000 * c.rank() + i));
    theirs.emplace_back(memory, Empty(50000));
  }
  for (int i = 0; i < kMessages; ++i) received.push_back(PostReceive(c, theirs[i], Previous(c), 3));
  for (int i = 0; i < kMessages; ++i) sent.push_back(PostSend(c, mine[i], Next(c), 3));
  for (int i = kMessages - 1; i >= 0; --i) {  // order of waiting is free
    const int64_t bytes = Finish(c, received[i], "one of many in order");
    ASSERT_EQ(bytes, mine[i].bytes()) << "message " << i;
    std::vector<int32_t> values = theirs[i].values();
    values.resize(bytes / sizeof(int32_t));
    EXPECT_EQ(values, Pattern(bytes / sizeof(int32_t), 1000 * Previous(c) + i)) << "message " << i;
  }
  for (CommRequest& request : sent) Finish(c, request, "one of many in order");
}

// Every rank sends a value of its own to every other one, and two to the next, in several exchanges posted at once; in
// every third there is nothing.
void ExchangesAmongAll(Communicator& c, const Stream& memory) {
  if (c.size() == 1) return;
  constexpr int kExchanges = 9;
  DeviceQueues* const queues = memory.device() == nullptr ? nullptr : &memory.device()->queues();
  DeviceQueues::Event const written = queues == nullptr ? nullptr : queues->MakeEvent().value();
  const auto seed = [&](int exchange, int from, int to) { return 100 * exchange + 10 * from + to; };
  const auto count = [](int exchange) { return exchange % 2 == 0 ? 5 : 50000; };
  struct Buffers {
    int peer;
    TransferBuffer mine, theirs;
  };
  std::vector<std::vector<Buffers>> buffers(kExchanges);
  for (int e = 0; e < kExchanges; ++e) {
    for (int peer = 0; peer < c.size() && e % 3 != 2; ++peer) {
      if (peer == c.rank()) continue;
      buffers[e].push_back({peer, TransferBuffer(memory, Pattern(count(e), seed(e, c.rank(), peer))),
                            TransferBuffer(memory, Empty(count(e)))});
    }
  }
  const TransferBuffer second(memory, Pattern(3, c.rank())), of_previous(memory, Empty(3));
  if (queues != nullptr) queues->Record(written, DeviceQueues::kMain);
  std::vector<CommRequest> requests;
  for (int e = 0; e < kExchanges; ++e) {
    std::vector<ExchangePart> parts;
    for (const Buffers& b : buffers[e]) {
      parts.push_back({b.peer, b.mine.data(), b.mine.bytes(), b.theirs.data(), b.theirs.bytes()});
    }
    if (e == 0) {
      parts.push_back({.peer = Next(c), .send = second.data(), .send_bytes = second.bytes()});
      parts.push_back({.peer = Previous(c), .receive = of_previous.data(), .receive_bytes = of_previous.bytes()});
    }
    const absl::Status posted = c.Exchange(parts, 5, written, requests);
    EXPECT_TRUE(posted.ok()) << posted;
  }
  for (CommRequest& request : requests) Finish(c, request, "an exchange");
  for (int e = 0; e < kExchanges; ++e) {
    for (const Buffers& b : buffers[e]) EXPECT_EQ(b.theirs.values(), Pattern(count(e), seed(e, b.peer, c.rank())));
  }
  EXPECT_EQ(of_previous.values(), Pattern(3, Previous(c)));
  if (queues != nullptr) queues->DestroyEvent(written);
}

// Tags match whatever the order of posts; a message whose receive comes last does not hold up those behind it.
void TagsDoNotWaitForEachOther(Communicator& c, const Stream& memory) {
  constexpr int kTags = 15;
  std::vector<TransferBuffer> mine, theirs;
  std::vector<CommRequest> sent;
  for (int tag = 0; tag < kTags; ++tag) {
    mine.emplace_back(memory, Pattern(3000, 100 * c.rank() + tag));
    theirs.emplace_back(memory, Empty(3000));
    sent.push_back(PostSend(c, mine[tag], Next(c), tag * 2047));
  }
  for (int tag = kTags - 1; tag >= 0; --tag) {
    CommRequest received = PostReceive(c, theirs[tag], Previous(c), tag * 2047);
    Finish(c, received, "the last of those sent");
    EXPECT_EQ(theirs[tag].values(), Pattern(3000, 100 * Previous(c) + tag));
  }
  for (CommRequest& request : sent) Finish(c, request, "one of many tags");
}

void SelfSend(Communicator& c, const Stream& memory) {
  const TransferBuffer mine(memory, Pattern(100000, c.rank()));
  TransferBuffer back(memory, Empty(100000));
  CommRequest sent = PostSend(c, mine, c.rank(), 9);
  CommRequest received = PostReceive(c, back, c.rank(), 9);
  Finish(c, sent, "a message to myself");
  Finish(c, received, "a message to myself");
  EXPECT_EQ(back.values(), mine.values());
}

// Everybody to everybody, both directions of a pair at once, all outstanding together.
void ManyOutstandingBothWays(Communicator& c, const Stream& memory) {
  constexpr int kEach = 20;
  constexpr int64_t kCount = 4000;
  std::vector<TransferBuffer> buffers;
  std::vector<CommRequest> requests;
  for (int peer = 0; peer < c.size(); ++peer) {
    for (int i = 0; i < kEach; ++i) {
      buffers.emplace_back(memory, Pattern(kCount, 10000 * c.rank() + 100 * peer + i));
      requests.push_back(PostSend(c, buffers.back(), peer, 5));
    }
  }
  const size_t first_received = buffers.size();
  for (int peer = 0; peer < c.size(); ++peer) {
    for (int i = 0; i < kEach; ++i) {
      buffers.emplace_back(memory, Empty(kCount));
      requests.push_back(PostReceive(c, buffers.back(), peer, 5));
    }
  }
  for (CommRequest& request : requests) Finish(c, request, "one of many outstanding");
  for (int peer = 0; peer < c.size(); ++peer) {
    for (int i = 0; i < kEach; ++i) {
      EXPECT_EQ(buffers[first_received + peer * kEach + i].values(),
                Pattern(kCount, 10000 * peer + 100 * c.rank() + i));
    }
  }
}

// Requests are used again: a long exchange must not grow anything, and Test and Progress alone must finish it.
void TestAndProgressAlone(Communicator& c, const Stream& memory) {
  for (int i = 0; i < 300; ++i) {
    const TransferBuffer mine(memory, {1000 * c.rank() + i});
    TransferBuffer theirs(memory, Empty(1));
    CommRequest requests[] = {PostReceive(c, theirs, Previous(c), 2), PostSend(c, mine, Next(c), 2)};
    EXPECT_LT(requests[1].id, 4) << "request numbers are not used again";
    const absl::Time hang = absl::Now() + kHang;
    for (CommRequest& request : requests) {
      while (request.active()) {
        c.Progress();
        const absl::StatusOr<bool> done = c.Test(request);
        ASSERT_LT(absl::Now(), hang);
        absl::SleepFor(absl::Microseconds(*done ? 0 : 20));
      }
    }
    ASSERT_EQ(theirs.values()[0], 1000 * Previous(c) + i);
  }
}

// Nobody sends. The error says who waited for whom and why, and closes the communicator.
void DeadlineNamesTheTransfer(Communicator& c, const Stream& memory) {
  TransferBuffer value(memory, {0});
  CommRequest received = PostReceive(c, value, Previous(c), 17);
  const absl::Status status = c.Wait(received, absl::Now() + absl::Milliseconds(50), "activations of micro-batch 3");
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rank " + std::to_string(c.rank()) + ", receive"),
                    HasSubstr("from rank " + std::to_string(Previous(c))), HasSubstr("tag 17"),
                    HasSubstr("activations of micro-batch 3"), ::testing::ContainsRegex("after [0-9.]+m?s "),
                    HasSubstr("Rank " + std::to_string(Previous(c)) + " is slow")));
  EXPECT_EQ(c.Send(value.data(), value.bytes(), Next(c), 18).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(c.Receive(value.data(), value.bytes(), Next(c), 18).status().code(), absl::StatusCode::kUnavailable);
}

// Every rank waits for a message that its neighbour sends only once a second message has arrived, meanwhile.
void WorksMeanwhile(Communicator& c, const Stream& memory) {
  const TransferBuffer mine(memory, {c.rank()}), late(memory, {100 + c.rank()});
  TransferBuffer theirs(memory, Empty(1)), their_late(memory, Empty(1));
  CommRequest awaited = PostReceive(c, their_late, Previous(c), 20), first = PostReceive(c, theirs, Previous(c), 21);
  CommRequest sent = PostSend(c, mine, Next(c), 21), late_sent;
  const std::function<absl::Status()> meanwhile = [&] {
    if (!first.active()) return absl::OkStatus();
    const absl::StatusOr<bool> here = c.Test(first);
    if (here.ok() && *here) late_sent = PostSend(c, late, Next(c), 20);
    return here.status();
  };
  const absl::Status status = c.Wait(awaited, absl::Now() + kHang, "the late message", nullptr, &meanwhile);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(their_late.values(), std::vector<int32_t>{100 + Previous(c)});
  while (first.active()) ASSERT_TRUE(meanwhile().ok());  // the wait was over too soon
  Finish(c, sent, "the first message");
  Finish(c, late_sent, "the late message");
}

// What fails meanwhile ends the wait, as what fails in the transport does.
void FailsMeanwhile(Communicator& c, const Stream& memory) {
  TransferBuffer value(memory, {0});
  CommRequest received = PostReceive(c, value, Previous(c), 22);
  const std::function<absl::Status()> meanwhile = [] { return absl::InternalError("the sum broke"); };
  const absl::Status status = c.Wait(received, absl::Now() + kHang, "activations", nullptr, &meanwhile);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("the sum broke"), HasSubstr("activations")));
  EXPECT_EQ(c.Send(value.data(), value.bytes(), Next(c), 23).status().code(), absl::StatusCode::kUnavailable);
}

// A deadline in the past still sees what is done already.
void PastDeadlineTestsOnce(Communicator& c, const Stream& memory) {
  const TransferBuffer mine(memory, {c.rank()});
  TransferBuffer theirs(memory, Empty(1));
  CommRequest sent = PostSend(c, mine, c.rank(), 4);
  CommRequest received = PostReceive(c, theirs, c.rank(), 4);
  Finish(c, sent, "a message to myself");
  for (int i = 0; i < 1000; ++i) c.Progress();  // MPICH brings even a message to oneself on its way only here
  const absl::Status status = c.Wait(received, absl::InfinitePast(), "a message to myself");
  EXPECT_TRUE(status.ok()) << status;
}

// Between two ranks: a rank that talks to itself knows both lengths, and Open MPI cuts such a message silently.
void TooLongAMessage(Communicator& c, const Stream& memory, int64_t count) {
  if (c.size() == 1) return;
  const TransferBuffer mine(memory, std::vector<int32_t>(count, c.rank()));
  TransferBuffer theirs(memory, Empty(count));  // room enough: a transport may write before it notices
  CommRequest received = PostReceive(c, theirs.data(), 8, Previous(c), 6);
  CommRequest sent = PostSend(c, mine, Next(c), 6);
  Finish(c, sent, "a message that is too long");
  const absl::Status status = c.Wait(received, absl::Now() + kHang, "a message that is too long");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("longer"), HasSubstr("tag 6")));
}

void LongerThanCapacitySmall(Communicator& c, const Stream& memory) { TooLongAMessage(c, memory, 16); }
void LongerThanCapacityLarge(Communicator& c, const Stream& memory) { TooLongAMessage(c, memory, 1 << 20); }

constexpr ConformanceCase kCases[] = {
    {"Small", Small},
    {"EightMebibytes", EightMebibytes},
    {"ZeroBytes", ZeroBytes},
    {"ReportsTheLengthOfAShorterMessage", ReportsTheLengthOfAShorterMessage},
    {"OrderWithinATag", OrderWithinATag},
    {"ExchangesAmongAll", ExchangesAmongAll},
    {"TagsDoNotWaitForEachOther", TagsDoNotWaitForEachOther},
    {"SelfSend", SelfSend},
    {"ManyOutstandingBothWays", ManyOutstandingBothWays},
    {"TestAndProgressAlone", TestAndProgressAlone},
    {"DeadlineNamesTheTransfer", DeadlineNamesTheTransfer},
    {"WorksMeanwhile", WorksMeanwhile},
    {"FailsMeanwhile", FailsMeanwhile},
    {"PastDeadlineTestsOnce", PastDeadlineTestsOnce},
    {"LongerThanCapacitySmall", LongerThanCapacitySmall},
    {"LongerThanCapacityLarge", LongerThanCapacityLarge},
};

}  // namespace

void PrintTo(const ConformanceCase& conformance_case, std::ostream* out) { *out << conformance_case.name; }

std::span<const ConformanceCase> PointToPointCases() { return kCases; }

std::string ConformanceCaseName(const ::testing::TestParamInfo<ConformanceCase>& info) { return info.param.name; }

}  // namespace hadal::testing
