// What two ranks hear of each other, over ranks of this process: a message is under way until the other side listens.
#include "runtime/comm/nccl_control_channel.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/comm/message_tags.h"
#include "runtime/comm/nccl_groups.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;

using Word = NcclMessage::Word;

void ExpectSame(const NcclMessage& heard, const NcclMessage& said) {
  EXPECT_EQ(heard.word, said.word);
  EXPECT_EQ(heard.tag, said.tag);
  EXPECT_EQ(heard.transfer, said.transfer);
  EXPECT_EQ(heard.bytes, said.bytes);
}

// The channels of ranks 0 and 1 to each other, in a world of three.
class NcclControlChannelTest : public ::testing::Test {
 protected:
  // The message must be there.
  static NcclMessage Hear(NcclControlChannel& channel) {
    const auto message = channel.Next();
    EXPECT_TRUE(message.ok()) << message.status();
    EXPECT_TRUE(message.ok() && message->has_value());
    return message.ok() ? message->value_or(NcclMessage()) : NcclMessage();
  }
  static bool HearsNothing(NcclControlChannel& channel) {
    const auto message = channel.Next();
    return message.ok() && !message->has_value();
  }

  InProcessWorld world_{3};
  NcclControlChannel zero_{world_.communicator(0), 1}, one_{world_.communicator(1), 0};
};

// Far more than have been received, each said from a place that is overwritten at once.
TEST_F(NcclControlChannelTest, MessagesAreHeardInTheOrderInWhichTheyWereSaid) {
  const auto message = [](int i) {
    return NcclMessage{.word = i % 2 == 0 ? Word::kOffer : Word::kGrant,
                       .tag = i,
                       .transfer = 1000 + i,
                       .bytes = (int64_t{1} << 40) + i};
  };
  NcclMessage said;
  for (int i = 0; i < 100; ++i) {
    said = message(i);
    ASSERT_TRUE(zero_.Say(said).ok());
  }
  EXPECT_TRUE(HearsNothing(one_)) << "it does not listen yet";
  ASSERT_TRUE(one_.Listen().ok());
  for (int i = 0; i < 100; ++i) ExpectSame(Hear(one_), message(i));
  EXPECT_TRUE(HearsNothing(one_));
}

TEST_F(NcclControlChannelTest, BothSidesMaySpeakBeforeEitherListens) {
  ASSERT_TRUE(zero_.Say({.word = Word::kOffer, .tag = 7}).ok());
  ASSERT_TRUE(one_.Say({.word = Word::kRefusal, .transfer = 5}).ok());
  ASSERT_TRUE(zero_.Listen().ok());
  ASSERT_TRUE(one_.Listen().ok());
  ExpectSame(Hear(zero_), {.word = Word::kRefusal, .transfer = 5});
  ExpectSame(Hear(one_), {.word = Word::kOffer, .tag = 7});
}

TEST_F(NcclControlChannelTest, OnlyItsPeerIsHeard) {
  NcclControlChannel two(world_.communicator(2), 1);
  ASSERT_TRUE(one_.Listen().ok());
  ASSERT_TRUE(two.Say({.tag = 2}).ok());
  EXPECT_TRUE(HearsNothing(one_));
  ASSERT_TRUE(zero_.Say({.tag = 1}).ok());
  ExpectSame(Hear(one_), {.tag = 1});
}

TEST_F(NcclControlChannelTest, IsOverWhenAllThatWasSaidIsReceived) {
  EXPECT_TRUE(zero_.is_over());
  ASSERT_TRUE(zero_.Say({.tag = 1}).ok());
  ASSERT_TRUE(zero_.Say({.tag = 2}).ok());
  ASSERT_TRUE(zero_.ForgetSent().ok());
  EXPECT_FALSE(zero_.is_over());
  ASSERT_TRUE(one_.Listen().ok());
  ASSERT_TRUE(zero_.ForgetSent().ok());
  EXPECT_FALSE(zero_.is_over()) << "the second is not received";
  Hear(one_);
  Hear(one_);
  EXPECT_FALSE(zero_.is_over()) << "it has not looked";
  ASSERT_TRUE(zero_.ForgetSent().ok());
  EXPECT_TRUE(zero_.is_over());
}

// Behind it nothing is received: the buffers may go.
TEST_F(NcclControlChannelTest, IsOverWhenItsPeerHasSentTheLastMessage) {
  ASSERT_TRUE(one_.Listen().ok());
  ASSERT_TRUE(zero_.Say({.word = Word::kOffer}).ok());
  EXPECT_EQ(Hear(one_).word, Word::kOffer);
  EXPECT_FALSE(one_.is_over());
  ASSERT_TRUE(zero_.Say({.word = Word::kLast}).ok());
  EXPECT_FALSE(one_.is_over()) << "not heard yet";
  EXPECT_EQ(Hear(one_).word, Word::kLast);
  EXPECT_TRUE(one_.is_over());
  ASSERT_TRUE(zero_.Say({.word = Word::kOffer}).ok());
  ASSERT_TRUE(zero_.ForgetSent().ok());
  EXPECT_FALSE(zero_.is_over()) << "nobody has taken it";
  EXPECT_TRUE(HearsNothing(one_));
}

TEST_F(NcclControlChannelTest, ErrorsAreThoseOfTheHostsCommunicator) {
  NcclControlChannel listening(world_.communicator(0), 2);
  ASSERT_TRUE(listening.Listen().ok());
  ASSERT_TRUE(zero_.Say({.tag = 1}).ok());
  world_.communicator(2).Abort(1);
  EXPECT_EQ(zero_.Say({.tag = 2}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(zero_.Listen().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(zero_.ForgetSent().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(listening.Next().status().code(), absl::StatusCode::kUnavailable);
}

// As another binary's might be.
TEST_F(NcclControlChannelTest, AMessageThatIsTooLongIsAnError) {
  const std::vector<std::byte> too_long(sizeof(NcclMessage) + 1);
  ASSERT_TRUE(one_.Listen().ok());
  ASSERT_TRUE(world_.communicator(0).Send(too_long.data(), std::ssize(too_long), 1, kNcclControlTag).ok());
  EXPECT_EQ(one_.Next().status().code(), absl::StatusCode::kInternal);
}

// The order of connecting; that ranks do connect is every test of an NCCL communicator's.
TEST(InRounds, ConnectsNeighboursInTwoRounds) {
  std::vector<RankPair> ring;
  for (int rank = 0; rank < 6; ++rank) ring.push_back({std::min(rank, (rank + 1) % 6), std::max(rank, (rank + 1) % 6)});
  ring.push_back(ring.front());
  EXPECT_THAT(InRounds(ring), ElementsAre(RankPair{0, 1}, RankPair{2, 3}, RankPair{4, 5}, RankPair{1, 2},
                                          RankPair{3, 4}, RankPair{0, 5}));
}

}  // namespace
}  // namespace hadal
