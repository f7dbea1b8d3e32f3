// Training goes on while a checkpoint's copy from a device is pending: by the order of events, not by times.

#include "gtest/gtest.h"
#include "kernels/add.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_file.h"
#include "runtime/arena.h"
#include "tests/support/emulated_device.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"

namespace hadal::testing {
namespace {

// Work in front of the save that has not ended.
class Gate final : public PendingWork {
 public:
  bool Done() override {
    asked = true;
    return open;
  }
  std::atomic<bool> asked = false, open = false;
};

TEST(PendingCopyTest, LaunchesGoOn) {
  const TemporaryDirectory directory;
  const CheckpointCommitter committer = SmallCommitter(directory.path());
  EmulatedDevice device;
  const Stream stream = Stream::On(device, 1);
  ArenaLayout layout;
  const ArenaSlice saved = layout.Reserve<float>("a", 24), trained = layout.Reserve<float>("a", 8),
                   staging = layout.ReserveHostBytes("b", 96);
  const Arena arena = *Arena::Allocate(layout, &device);
  const Vector weights = {arena.Get<float>(saved), 24}, other = {arena.Get<float>(trained), 8};
  const std::unique_ptr<SideQueue> queue = *SliceStaging::MakeQueue(device);
  const auto gate = std::make_shared<Gate>();
  Add(stream, {.sum = other, .values = other});  // its first launch waits for the device
  device.emulated_queues().DelayMain(gate);
  BackgroundFile file(committer.FileOptions(1, 0), {{.parameter = 1, .slice = 0, .weight = weights}}, Vector(),
                      {&device, queue.get(), {arena.Get<float>(staging), 24}});
  while (!gate->asked && !file.done()) std::this_thread::yield();
  EXPECT_TRUE(gate->asked) << "no copy is pending";
  const int64_t before = device.launches();
  for (int i = 0; i < 50; ++i) Add(stream, {.sum = other, .values = other});
  EXPECT_EQ(device.launches(), before + 50);
  EXPECT_FALSE(file.done());
  gate->open = true;
  file.BeforeUpdate(stream);
  stream.Clear(weights.data, 96);
  const absl::StatusOr<WrittenFile> written = file.Finish();
  EXPECT_TRUE(written.ok()) << written.status();
}

}  // namespace
}  // namespace hadal::testing
