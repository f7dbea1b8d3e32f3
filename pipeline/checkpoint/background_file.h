// BackgroundFile writes one rank's file of a checkpoint on a thread of its own, while training continues.
//
// Weights and moments do not change between two updates, so the thread reads them in place. Just before an update,
// BeforeUpdate secures the slices not yet written: it copies those that fit to the buffer and waits until the others
// are written. From then on the thread reads the buffer only.
//
//   slices   0 1 2 3 4 | 5 6 7 … n−1        BeforeUpdate waits until the unwritten slices fit the buffer, copies them,
//            written     unwritten          and waits for the slice being written: at most until (all − buffer) bytes
//                                           and one slice are written
//
// Threads: one thread makes all calls; the object's own only writes the file. Blocking: as stated. Source of the idea:
// CheckFreq (Mohan, Phanishayee and Chidambaram, FAST 2021), which always copies first.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_writer.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

class BackgroundFile {
 public:
  // Starts writing. `writer`, `buffer` and the memory that `slices` view must outlive the object. The caller must not
  // change any of them until done(); after BeforeUpdate it may change the slices' memory.
  // `device`: where the slices are; null: host memory. The buffer is always in host memory.
  BackgroundFile(CheckpointWriter& writer, int64_t step, int rank, std::vector<SliceState> slices, Vector buffer,
                 Device* device = nullptr);
  // Stops after the slice being written and joins the thread.
  ~BackgroundFile();

  // Call before the memory of any slice changes. `stream` makes the copies. Cheap after the first call. Blocking: see
  // above.
  void BeforeUpdate(const Stream& stream);
  // Whether the file is complete or has failed. Does not block.
  bool done() const;
  // Waits until done() and returns the result; call it once. Errors: those of CheckpointWriter::WriteRankFile; an
  // exception thrown there (no memory: ResourceExhausted).
  absl::StatusOr<WrittenFile> Finish();

 private:
  absl::StatusOr<WrittenFile> Write(CheckpointWriter& writer, int64_t step, int rank);
  void End(absl::StatusOr<WrittenFile> result);
  absl::Status WriteSlice(size_t index, const CheckpointWriter::AppendSlice& append);
  // Number of floats in slices [first, n).
  int64_t FloatsFrom(size_t first) const { return first < floats_from_.size() ? floats_from_[first] : 0; }
  void CopyFrom(size_t first, const Stream& stream);
  // Called on the object's thread: copies `slice` to host memory, in `values`, unless it is there already.
  void BringToHost(SliceState& slice, std::vector<float>& values) const;

  const Vector buffer_;
  Device* const device_;
  std::vector<int64_t> floats_from_;  // [slices]

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SliceState> slices_;  // views of the model; from some slice on, of the buffer
  size_t under_way_ = 0;            // the slice that the thread writes or will take next
  bool busy_ = false;               // whether it has taken that slice
  bool safe_ = false;               // whether the thread no longer reads the model's memory
  bool cancelled_ = false;
  bool done_ = false;
  absl::StatusOr<WrittenFile> result_ = absl::UnknownError("not written yet");
  std::thread thread_;  // last member: starts after all others are initialised
};

}  // namespace hadal
