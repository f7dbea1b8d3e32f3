#include "runtime/side_queue.h"

#include <thread>

#include "gtest/gtest.h"
#include "kernels/add.h"
#include "kernels/linear.h"
#include "runtime/arena.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

constexpr size_t kPieces = 6, kUnderWay = 2;

// A number for each piece on a device, which the main order makes and the piece adds to its sum.
class SideQueueTest : public ::testing::Test {
 protected:
  SideQueueTest() {
    ArenaLayout layout;
    const ArenaSlice values = layout.Reserve<float>("a", kPieces), sums = layout.Reserve<float>("a", kPieces),
                     one = layout.Reserve<float>("a", 1);
    arena_ = *Arena::Allocate(layout, device_.get());
    values_ = {arena_.Get<float>(values), kPieces};
    sums_ = {arena_.Get<float>(sums), kPieces};
    one_ = {arena_.Get<float>(one), 1};
    const float host_one = 1.0f;
    stream_.FromHost(one_.data, &host_one, sizeof(host_one));
    queue_ = *SideQueue::Create(*device_, kPieces, kUnderWay);
  }

  static Vector Of(Vector all, size_t piece) { return {all.data + piece, 1}; }
  // In the main order, all `times` in the end.
  void MakeValue(size_t piece, int times) {
    for (int i = 0; i < times; ++i) Add(stream_, {.sum = Of(values_, piece), .values = one_});
  }
  void Begin(size_t piece) {
    const Stream beside = queue_->Begin(stream_, piece);
    for (int i = 0; i < 2; ++i) Add(beside, {.sum = Of(sums_, piece), .values = Of(values_, piece)});
    queue_->End(piece);
  }
  void Finish(size_t piece) {
    while (!queue_->Done(piece)) std::this_thread::yield();
  }

  const std::unique_ptr<Device> device_ = MakeTestDevice(5);
  const Stream stream_ = Stream::On(*device_, 1);
  Arena arena_;
  Vector values_, sums_, one_;
  std::unique_ptr<SideQueue> queue_;
};

TEST_F(SideQueueTest, APieceRunsBehindWhatItWaitsFor) {
  std::vector<float> expected(kPieces, 0.0f), seen(kPieces);
  for (int round = 1; round <= 20; ++round) {
    stream_.Clear(values_.data, values_.size * int64_t{sizeof(float)});
    for (size_t piece = 0; piece < kPieces; ++piece) {
      MakeValue(piece, round % 7);
      expected[piece] += 2.0f * static_cast<float>(round % 7);
      if (piece == 2) queue_->MarkReady(0, 3);
    }
    queue_->MarkReady(3, 3);  // nothing
    queue_->MarkReady(3, kPieces);
    Begin(0);
    for (size_t piece = 1; piece < kPieces; ++piece) {
      Begin(piece);
      Finish(piece - 1);
    }
    Finish(kPieces - 1);
    stream_.ToHost(seen.data(), sums_.data, sums_.size * int64_t{sizeof(float)});
    ASSERT_EQ(seen, expected) << "in round " << round;
  }
}

// The host has seen the end of a piece: what it launches then reads what the piece has written.
TEST_F(SideQueueTest, TheMainOrderReadsBehindTheEnd) {
  for (int round = 1; round <= 20; ++round) {
    MakeValue(0, 1);
    queue_->MarkReady(0, 1);
    Begin(0);
    Finish(0);
    stream_.Copy(values_.data + 1, sums_.data, sizeof(float));
    float seen = 0;
    stream_.ToHost(&seen, values_.data + 1, sizeof(float));
    ASSERT_EQ(seen, static_cast<float>(round * (round + 1)));
  }
}

TEST_F(SideQueueTest, OnlyWhatSharesNothingRunsBeside) {
  queue_->MarkReady(0, 1);
  const Stream beside = queue_->Begin(stream_, 0);
  EXPECT_DEATH(LinearForward(beside, {.x = {values_.data, 1, 1}, .weight = {one_.data, 1, 1}, .y = {sums_.data, 1, 1}}),
               "kMain");
  EXPECT_DEATH(beside.Copy(values_.data, one_.data, sizeof(float)), "kMain");
  EXPECT_DEATH(beside.Synchronize(), "kMain");
  EXPECT_DEATH(
      {
        device_->BeginCapture();
        Add(beside, {.sum = one_, .values = one_});
      },
      "capturing");
  queue_->End(0);
  Finish(0);
}

}  // namespace
}  // namespace hadal::testing
