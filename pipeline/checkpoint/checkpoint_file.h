// Writes one rank's file of a checkpoint: CheckpointFileWriter streams slices into a safetensors file; during training
// BackgroundFile does so on its own thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "runtime/device.h"
#include "runtime/safetensors.h"
#include "runtime/side_queue.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct CheckpointFileOptions {
  std::string directory;                   // created if necessary
  std::vector<std::string> removed_first;  // directories whose space the file takes
  int rank = 0;
  int64_t step = 0;
  uint64_t plan_hash = 0;
  const std::vector<CheckpointParameter>* parameters = nullptr;  // must outlive the writer
};

// Streams slices into RankFileName(rank). Memory: that of SafetensorsWriter.
// Thread safety: one thread at a time. Blocking: all calls write files.
class CheckpointFileWriter {
 public:
  // Creates the file and writes its header, which lists `slices` in their order, each with the state kinds (weight,
  // moments) whose views are not empty. Does not read the values.
  // REQUIRES: parameters and slices exist; the views have the slices' sizes.
  // Errors: ResourceExhausted (no space; says how much is free), PermissionDenied, NotFound (the directory vanished), …
  static absl::StatusOr<CheckpointFileWriter> Create(const CheckpointFileOptions& options,
                                                     std::span<const SliceState> slices);

  // Appends the next slice. Its views may differ from those passed to Create. REQUIRES: the same state kinds as there.
  absl::Status Append(const SliceState& slice);

  // Flushes, fsyncs and closes the file.  REQUIRES: all slices have been appended.
  absl::StatusOr<WrittenFile> Finish();

 private:
  CheckpointFileWriter(SafetensorsWriter writer, const CheckpointFileOptions& options,
                       std::span<const SliceState> slices);

  SafetensorsWriter writer_;
  const std::vector<CheckpointParameter>* parameters_;
  WrittenFile file_;     // of all slices; their checksums are 0 until Finish
  size_t appended_ = 0;  // slices written so far
};

// BackgroundFile writes one rank's file of a checkpoint on its own thread while training continues.
//
// Weights and moments do not change between two updates, so the thread reads them in place. Before an update,
// BeforeUpdate waits until the slices that the thread has not read yet fit in the buffer, copies them there, and
// waits for the slice that the thread is reading. After that the thread reads only the buffer.
//
//   slices   0 1 2 3 4 | 5 6 7 … n−1     BeforeUpdate waits until the unread slices fit the buffer, copies them, and
//            read        unread          waits for the slice being read
//
// On the CPU a slice is read when it is written. On a device the thread copies it to pinned staging memory, on a queue
// of its own beside the kernels, and writes it from there: an update waits only for that copy, not for the file. The
// copies to the buffer are enqueued on the main queue in front of the update, and the host does not wait for them.
//
//   main queue   step N │ready   forward, backward …   │ copies to the buffer │buffered   the update …
//   own queue           └─► slice 0, slice 1, …                               └─► the thread reads the buffer
// Source of the idea: CheckFreq (Mohan, Phanishayee and Chidambaram, FAST 2021), which always copies first.
// Threads: one thread (on a device, the device's) makes all calls; the internal thread copies and writes. Blocking: as
// stated.
class BackgroundFile;

// How the thread reads slices that are on a device.
struct SliceStaging {
  // Makes the queue. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<SideQueue>> MakeQueue(Device& device);

  Device* device = nullptr;    // null: the slices are in host memory, and nothing is staged
  SideQueue* queue = nullptr;  // from MakeQueue; used by one file at a time
  Vector memory;               // pinned; holds the largest slice's weights and moments
};

class BackgroundFile {
 public:
  // Starts writing. `buffer`, `staging` and the memory that `slices` view must outlive the object. The caller must
  // not change any of them until done(); after BeforeUpdate it may change the slices' memory, on a device by work on
  // the main queue. `buffer`: host memory, pinned if the slices are on a device; may be empty.
  BackgroundFile(CheckpointFileOptions options, std::vector<SliceState> slices, Vector buffer,
                 const SliceStaging& staging = {});
  // Stops after the slice being written and joins the thread.
  ~BackgroundFile();

  // Call before the memory of any slice changes. `stream` executes the copies. Blocking: the first call, as stated
  // above; later calls return at once.
  void BeforeUpdate(const Stream& stream);
  // Returns whether the file is complete or has failed. Does not block.
  bool done() const;
  // Waits until done() and returns the result; call once. Errors: those of CheckpointFileWriter; ResourceExhausted if
  // the thread ran out of memory.
  absl::StatusOr<WrittenFile> Finish();

 private:
  // Called on the internal thread.
  absl::StatusOr<WrittenFile> Write(const CheckpointFileOptions& options);
  absl::StatusOr<SliceState> Take(size_t index);  // starts reading a slice
  void HasRead();                                 // ends the reading of the slice that Take returned
  void End(absl::StatusOr<WrittenFile> result);
  // Device: copies `slice` to the staging memory, or waits until the buffer has it. Sets its views accordingly.
  void Stage(SliceState& slice) const;

  bool InBuffer(const SliceState& slice) const;
  // Number of floats in slices [first, n).
  int64_t FloatsFrom(size_t first) const { return first < floats_from_.size() ? floats_from_[first] : 0; }
  void CopyFrom(size_t first, const Stream& stream);

  const Vector buffer_;
  const SliceStaging staging_;
  std::vector<int64_t> floats_from_;  // [slices] FloatsFrom(slice)

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SliceState> slices_;  // views of the model; from some slice on, of the buffer
  size_t next_ = 0;                 // the first slice that the thread has not begun to read
  bool reading_ = false;            // whether the thread is reading the model's memory, slice next_ − 1
  bool safe_ = false;               // whether the thread no longer reads the model's memory
  bool cancelled_ = false;
  bool done_ = false;
  absl::StatusOr<WrittenFile> result_ = absl::UnknownError("not written yet");
  std::thread thread_;  // last member: starts after all others are initialised
};

}  // namespace hadal
