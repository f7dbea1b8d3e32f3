#include "pipeline/checkpoint/checkpoint_file.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/check.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "runtime/thrown_error.h"

namespace hadal {

CheckpointFileWriter::CheckpointFileWriter(SafetensorsWriter writer, const CheckpointFileOptions& options,
                                           std::span<const SliceState> slices)
    : writer_(std::move(writer)), parameters_(options.parameters) {
  file_.name = RankFileName(options.rank);
  for (const SliceState& slice : slices) {
    WrittenSlice& written = file_.slices.emplace_back();
    written.parameter = slice.parameter;
    written.slice = slice.slice;
    for (const StateKind kind : kStateKinds) {
      if (!slice.view(kind).empty()) written.crc32c[static_cast<size_t>(kind)] = 0;
    }
  }
}

absl::StatusOr<CheckpointFileWriter> CheckpointFileWriter::Create(const CheckpointFileOptions& options,
                                                                  std::span<const SliceState> slices) {
  std::vector<SafetensorsTensor> tensors;
  for (const SliceState& slice : slices) {
    const CheckpointParameter& parameter = options.parameters->at(static_cast<size_t>(slice.parameter));
    for (const StateKind kind : kStateKinds) {
      if (slice.view(kind).empty()) continue;
      tensors.push_back({.name = StateKey(kind, parameter.name, slice.slice),
                         .type = SafetensorsType::kF32,
                         .shape = {parameter.slice_elements(slice.slice)}});
    }
  }
  const SafetensorsMetadata metadata = {{"format", absl::StrCat("hadal checkpoint ", kCheckpointFormat)},
                                        {"plan_hash", absl::StrFormat("%016x", options.plan_hash)},
                                        {"rank", absl::StrCat(options.rank)},
                                        {"step", absl::StrCat(options.step)}};
  HADAL_RETURN_IF_ERROR(MakeDirectories(options.directory));
  HADAL_ASSIGN_OR_RETURN(
      SafetensorsWriter writer,
      SafetensorsWriter::Create(JoinPath(options.directory, RankFileName(options.rank)), std::move(tensors), metadata));
  return CheckpointFileWriter(std::move(writer), options, slices);
}

absl::Status CheckpointFileWriter::Append(const SliceState& slice) {
  HADAL_CHECK_LT(appended_, file_.slices.size());
  const WrittenSlice& announced = file_.slices[appended_];
  HADAL_CHECK_EQ(slice.parameter, announced.parameter);
  HADAL_CHECK_EQ(slice.slice, announced.slice);
  for (const StateKind kind : kStateKinds) {
    const Vector& values = slice.view(kind);
    HADAL_CHECK_EQ(!values.empty(), announced.crc32c[static_cast<size_t>(kind)].has_value());
    if (values.empty()) continue;
    HADAL_CHECK_EQ(values.size, parameters_->at(static_cast<size_t>(slice.parameter)).slice_elements(slice.slice));
    HADAL_RETURN_IF_ERROR(
        writer_.Append({reinterpret_cast<const char*>(values.data), static_cast<size_t>(values.size) * sizeof(float)}));
  }
  ++appended_;
  return absl::OkStatus();
}

absl::StatusOr<WrittenFile> CheckpointFileWriter::Finish() {
  HADAL_CHECK_EQ(appended_, file_.slices.size());
  HADAL_ASSIGN_OR_RETURN(const SafetensorsSummary summary, writer_.Finish());
  file_.bytes = summary.bytes;
  file_.crc32c = summary.crc32c;
  file_.header_bytes = summary.header_bytes;
  file_.header_crc32c = summary.header_crc32c;
  size_t tensor = 0;
  for (WrittenSlice& slice : file_.slices) {
    for (std::optional<uint32_t>& crc : slice.crc32c) {
      if (crc) crc = summary.tensor_crc32c[tensor++];
    }
  }
  return std::move(file_);
}

namespace {

constexpr int64_t kCopyGrain = 4096;                      // floats
constexpr size_t kReady = 0, kBuffered = 1, kPieces = 2;  // what the queue waits for, in the main order

std::array<Vector*, 3> ViewsOf(SliceState& slice) { return {&slice.weight, &slice.first_moment, &slice.second_moment}; }

int64_t FloatsOf(const SliceState& slice) {
  return slice.weight.size + slice.first_moment.size + slice.second_moment.size;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SideQueue>> SliceStaging::MakeQueue(Device& device) {
  return SideQueue::Create(device, kPieces, /*most_under_way=*/1);
}

BackgroundFile::BackgroundFile(CheckpointFileOptions options, std::vector<SliceState> slices, Vector buffer,
                               const SliceStaging& staging)
    : buffer_(buffer), staging_(staging), floats_from_(slices.size()), slices_(std::move(slices)) {
  for (size_t i = slices_.size(); i-- > 0;) floats_from_[i] = FloatsFrom(i + 1) + FloatsOf(slices_[i]);
  if (staging_.device != nullptr) staging_.queue->MarkReady(kReady, kReady + 1);
  thread_ = std::thread([this, options = std::move(options)] { End(CatchExceptions([&] { return Write(options); })); });
}

BackgroundFile::~BackgroundFile() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  thread_.join();
}

absl::StatusOr<WrittenFile> BackgroundFile::Write(const CheckpointFileOptions& options) {
  // A copy: BeforeUpdate changes the views, never the shapes.
  const std::vector<SliceState> announced = [this] {
    const std::lock_guard lock(mutex_);
    return slices_;
  }();
  for (const std::string& directory : options.removed_first) RemoveTree(directory).IgnoreError();
  HADAL_ASSIGN_OR_RETURN(CheckpointFileWriter writer, CheckpointFileWriter::Create(options, announced));
  const bool stages = staging_.device != nullptr;
  for (size_t i = 0; i < announced.size(); ++i) {
    HADAL_ASSIGN_OR_RETURN(SliceState slice, Take(i));
    if (stages) Stage(slice);
    if (stages) HasRead();
    HADAL_RETURN_IF_ERROR(writer.Append(slice));
    if (!stages) HasRead();
  }
  return writer.Finish();
}

absl::StatusOr<SliceState> BackgroundFile::Take(size_t index) {
  const std::lock_guard lock(mutex_);
  if (cancelled_) return absl::CancelledError("the run ended before its checkpoint was written");
  next_ = index + 1;
  reading_ = !InBuffer(slices_[index]);
  return slices_[index];
}

void BackgroundFile::HasRead() {
  const std::lock_guard lock(mutex_);
  reading_ = false;
  changed_.notify_all();
}

void BackgroundFile::End(absl::StatusOr<WrittenFile> result) {
  const std::lock_guard lock(mutex_);
  result_ = std::move(result);
  reading_ = false;
  safe_ = true;
  done_ = true;
  changed_.notify_all();
}

bool BackgroundFile::InBuffer(const SliceState& slice) const {
  return slice.weight.data >= buffer_.data && slice.weight.data < buffer_.data + buffer_.size;
}

void BackgroundFile::Stage(SliceState& slice) const {
  SideQueue& queue = *staging_.queue;
  const Stream main = Stream::On(*staging_.device, 1);
  const bool copies = !InBuffer(slice);
  const size_t piece = copies ? kReady : kBuffered;
  if (copies) {
    HADAL_CHECK_LE(FloatsOf(slice), staging_.memory.size);
    float* to = staging_.memory.data;
    for (Vector* const view : ViewsOf(slice)) {
      if (view->empty()) continue;
      const Stream beside = queue.Begin(main, piece);
      staging_.device->EnqueueCopyOut(beside.queue(), to, view->data, view->size * int64_t{sizeof(float)});
      *view = Vector(to, view->size);
      to += view->size;
    }
  } else {
    queue.Begin(main, piece);
  }
  queue.End(piece);
  queue.Finish(piece, "a copy to the host");
}

void BackgroundFile::BeforeUpdate(const Stream& stream) {
  std::unique_lock lock(mutex_);
  if (safe_) return;
  changed_.wait(lock, [&] { return done_ || FloatsFrom(next_) <= buffer_.size; });
  if (done_) return;
  CopyFrom(next_, stream);
  changed_.wait(lock, [&] { return done_ || !reading_; });
  safe_ = true;
}

void BackgroundFile::CopyFrom(size_t first, const Stream& stream) {
  float* to = buffer_.data;
  for (size_t i = first; i < slices_.size(); ++i) {
    for (Vector* const view : ViewsOf(slices_[i])) {
      if (view->empty()) continue;
      const float* const from = view->data;
      if (staging_.device != nullptr) {
        staging_.device->EnqueueCopyOut(DeviceQueues::kMain, to, from, view->size * int64_t{sizeof(float)});
      } else {
        stream.ForRanges(view->size, kCopyGrain,
                         [&](int64_t begin, int64_t end) { std::copy(from + begin, from + end, to + begin); });
      }
      *view = Vector(to, view->size);
      to += view->size;
    }
  }
  if (staging_.device != nullptr) staging_.queue->MarkReady(kBuffered, kBuffered + 1);
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
