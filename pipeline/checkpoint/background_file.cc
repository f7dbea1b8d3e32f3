#include "pipeline/checkpoint/background_file.h"

#include <algorithm>
#include <utility>

#include "runtime/thrown_error.h"

namespace hadal {
namespace {

constexpr int64_t kCopyGrain = 4096;  // floats

int64_t FloatsOf(const SliceState& slice) {
  int64_t floats = 0;
  for (const StateKind kind : kStateKinds) floats += slice.view(kind).size;
  return floats;
}

}  // namespace

BackgroundFile::BackgroundFile(CheckpointWriter& writer, int64_t step, int rank, std::vector<SliceState> slices,
                               Vector buffer, Device* device)
    : buffer_(buffer), device_(device), floats_from_(slices.size()), slices_(std::move(slices)) {
  for (size_t i = slices_.size(); i-- > 0;) floats_from_[i] = FloatsFrom(i + 1) + FloatsOf(slices_[i]);
  thread_ =
      std::thread([this, &writer, step, rank] { End(CatchExceptions([&] { return Write(writer, step, rank); })); });
}

BackgroundFile::~BackgroundFile() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  thread_.join();
}

absl::StatusOr<WrittenFile> BackgroundFile::Write(CheckpointWriter& writer, int64_t step, int rank) {
  // A copy: BeforeUpdate changes the views, never the shapes that this list announces.
  const std::vector<SliceState> announced = [this] {
    const std::lock_guard lock(mutex_);
    return slices_;
  }();
  return writer.WriteRankFile(step, rank, announced, [this](size_t index, const CheckpointWriter::AppendSlice& append) {
    return WriteSlice(index, append);
  });
}

void BackgroundFile::End(absl::StatusOr<WrittenFile> result) {
  const std::lock_guard lock(mutex_);
  result_ = std::move(result);
  busy_ = false;
  safe_ = true;
  done_ = true;
  changed_.notify_all();
}

absl::Status BackgroundFile::WriteSlice(size_t index, const CheckpointWriter::AppendSlice& append) {
  SliceState slice;
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) return absl::CancelledError("the run ended before its checkpoint was written");
    under_way_ = index;
    busy_ = true;
    slice = slices_[index];
  }
  std::vector<float> values;
  BringToHost(slice, values);
  absl::Status status = append(slice);
  const std::lock_guard lock(mutex_);
  under_way_ = index + 1;
  busy_ = false;
  changed_.notify_all();
  return status;
}

void BackgroundFile::BringToHost(SliceState& slice, std::vector<float>& values) const {
  const auto in_buffer = [this](const Vector& v) {
    return v.data >= buffer_.data && v.data < buffer_.data + buffer_.size;
  };
  if (device_ == nullptr || in_buffer(slice.weight)) return;
  values.resize(FloatsOf(slice));
  float* to = values.data();
  for (Vector* view : {&slice.weight, &slice.first_moment, &slice.second_moment}) {
    if (view->empty()) continue;
    device_->CopyOut(to, view->data, view->size * int64_t{sizeof(float)});
    *view = Vector(to, view->size);
    to += view->size;
  }
}

void BackgroundFile::BeforeUpdate(const Stream& stream) {
  std::unique_lock lock(mutex_);
  if (safe_) return;
  // The slice under way is written from where it is; those behind it are copied.
  const auto first_to_copy = [this] { return under_way_ + (busy_ ? 1 : 0); };
  changed_.wait(lock, [&] { return done_ || FloatsFrom(first_to_copy()) <= buffer_.size; });
  if (done_) return;
  const size_t first = first_to_copy();
  CopyFrom(first, stream);
  changed_.wait(lock, [&] { return done_ || under_way_ >= first; });
  safe_ = true;
}

void BackgroundFile::CopyFrom(size_t first, const Stream& stream) {
  float* to = buffer_.data;
  for (size_t i = first; i < slices_.size(); ++i) {
    for (Vector* view : {&slices_[i].weight, &slices_[i].first_moment, &slices_[i].second_moment}) {
      if (view->empty()) continue;
      const float* const from = view->data;
      if (device_ != nullptr) {
        stream.ToHost(to, from, view->size * int64_t{sizeof(float)});
      } else {
        stream.ForRanges(view->size, kCopyGrain,
                         [&](int64_t begin, int64_t end) { std::copy(from + begin, from + end, to + begin); });
      }
      *view = Vector(to, view->size);
      to += view->size;
    }
  }
}

bool BackgroundFile::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

absl::StatusOr<WrittenFile> BackgroundFile::Finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
  return std::move(result_);
}

}  // namespace hadal
