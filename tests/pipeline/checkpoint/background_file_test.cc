// A file that is written beside training, of slices in host memory and on a device.
#include "pipeline/checkpoint/checkpoint_file.h"

#include <chrono>

#include "gmock/gmock.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "runtime/check.h"
#include "tests/support/recorded_syncs.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"

namespace hadal {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSliceFloats = kSliceElements * 3;

int64_t AllFloats(SmallState& state) {
  int64_t floats = 0;
  for (const SliceState& slice : state.Slices()) {
    for (const StateKind kind : kStateKinds) floats += slice.view(kind).size;
  }
  return floats;
}

class BackgroundFileTest : public ::testing::Test {
 protected:
  // Commits `file` as the whole checkpoint of `step` and compares it with `expected`.
  void ExpectCommitted(int64_t step, const absl::StatusOr<WrittenFile>& file, SmallState& expected) {
    ASSERT_TRUE(file.ok()) << file.status();
    const absl::StatusOr<CommitResult> committed = committer_.Commit({.progress = {.step = step}, .files = {*file}});
    SmallState read(SmallParameters(), 0);
    read.Clear();
    absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(committed->directory);
    ASSERT_TRUE(reader->Verify().ok());
    ASSERT_TRUE(reader->ReadSlices(read.Slices()).ok());
    EXPECT_TRUE(read == expected);
  }

  TemporaryDirectory directory_;
  CheckpointCommitter committer_ = SmallCommitter(directory_.path());
};

// A state on a device, and what a file of it needs.
class StateOnDevice {
 public:
  explicit StateOnDevice(SmallState& state) : slices_(state.Slices()) {
    memory_ = {reinterpret_cast<float*>(*device_->Allocate(AllFloats(state) * int64_t{4})), AllFloats(state)};
    buffer_ = reinterpret_cast<float*>(*device_->AllocateHost(memory_.size * int64_t{4}));
    staging_ = reinterpret_cast<float*>(*device_->AllocateHost(kSliceFloats * int64_t{4}));
    queue_ = *SliceStaging::MakeQueue(*device_);
    float* to = memory_.data;
    for (SliceState& slice : slices_) {
      for (Vector* view : {&slice.weight, &slice.first_moment, &slice.second_moment}) {
        stream_.FromHost(to, view->data, view->size * int64_t{4});
        *view = {to, view->size};
        to += view->size;
      }
    }
  }
  ~StateOnDevice() {
    queue_.reset();
    device_->Free(reinterpret_cast<std::byte*>(memory_.data));
    for (float* const pinned : {buffer_, staging_}) device_->FreeHost(reinterpret_cast<std::byte*>(pinned));
  }

  const std::vector<SliceState>& slices() const { return slices_; }
  Vector buffer(int64_t floats) const {
    HADAL_CHECK_LE(floats, memory_.size);
    return {buffer_, floats};
  }
  SliceStaging staging() const { return {device_.get(), queue_.get(), {staging_, kSliceFloats}}; }
  Device& device() { return *device_; }
  const Stream& stream() const { return stream_; }
  void Clear() { stream_.Clear(memory_.data, memory_.size * int64_t{4}); }

 private:
  const std::unique_ptr<Device> device_ = testing::MakeTestDevice(3);
  const Stream stream_ = Stream::On(*device_, 1);
  std::vector<SliceState> slices_;
  Vector memory_;
  float *buffer_ = nullptr, *staging_ = nullptr;
  std::unique_ptr<SideQueue> queue_;
};

// Buffers of nothing, less than a slice, two slices, everything; the update at different moments of the writing. On a
// device it is enqueued as soon as it may be, in front of no wait of the host.
TEST_F(BackgroundFileTest, WritesTheValuesOfItsStart) {
  int64_t step = 0;
  SmallState expected(SmallParameters(), 7);
  const int64_t all = AllFloats(expected);
  std::vector<float> buffer(static_cast<size_t>(all));
  for (const int64_t size : {int64_t{0}, int64_t{1000}, kSliceFloats, all}) {
    for (const int delay_us : {0, 300, 2000, 8000}) {
      SCOPED_TRACE(::testing::Message() << "buffer of " << size << ", update after " << delay_us << " us");
      const auto run = [&](BackgroundFile& file, const Stream& stream, auto& state) {
        std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
        for (int update = 0; update < 2; ++update) {
          file.BeforeUpdate(stream);
          state.Clear();
        }
        ExpectCommitted(step, file.Finish(), expected);
        EXPECT_TRUE(file.done());
      };
      SmallState state(SmallParameters(), 7);
      BackgroundFile file(committer_.FileOptions(++step, 0), state.Slices(), {buffer.data(), size});
      run(file, Stream::Cpu(2), state);
      StateOnDevice on_device(expected);
      BackgroundFile of_device(committer_.FileOptions(++step, 0), on_device.slices(), on_device.buffer(size),
                               on_device.staging());
      run(of_device, on_device.stream(), on_device);
    }
  }
}

TEST_F(BackgroundFileTest, CopiesNothingWithoutAnUpdate) {
  SmallState state(SmallParameters(), 7), expected(SmallParameters(), 7);
  BackgroundFile file(committer_.FileOptions(1, 0), state.Slices(), {});
  ExpectCommitted(1, file.Finish(), expected);
}

TEST_F(BackgroundFileTest, ReturnsErrorsWithoutDelayingTheUpdate) {
  std::filesystem::remove_all(directory_.path());
  SetContents(directory_.path(), "a file where the run directory was");
  SmallState state(SmallParameters(), 7);
  BackgroundFile file(committer_.FileOptions(1, 0), state.Slices(), {});
  file.BeforeUpdate(Stream::Cpu(1));
  EXPECT_FALSE(file.Finish().ok());
}

// On a thread that nobody can catch anything from.
TEST_F(BackgroundFileTest, ReturnsAnErrorWhenOutOfMemory) {
  RecordedSyncs syncs;
  syncs.ThrowAfter(0);
  SmallState state(SmallParameters(), 7);
  BackgroundFile file(committer_.FileOptions(1, 0), state.Slices(), {});
  file.BeforeUpdate(Stream::Cpu(1));
  const absl::Status status = file.Finish().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not enough memory"));
}

TEST_F(BackgroundFileTest, CanBeDestroyedWhileWriting) {
  SmallState state(SmallParameters(), 7);
  { const BackgroundFile file(committer_.FileOptions(1, 0), state.Slices(), {}); }
  ASSERT_TRUE(committer_.Abandon(1).ok());
  EXPECT_TRUE(ListCheckpoints(directory_.path())->empty());
}

}  // namespace
}  // namespace hadal
