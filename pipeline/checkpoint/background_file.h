// One rank's file of a checkpoint, written by a thread of its own while training goes on.
//
// Weights and moments do not change between two updates, so the thread reads them in place. Just before an update,
// BeforeUpdate makes what is not yet written safe: slices that fit the buffer are copied to it, the others are waited
// for. From then on the thread writes from the buffer.
//
//   slices   0 1 2 3 4 | 5 6 7 … n−1        BeforeUpdate: waits until what is left fits, copies it, waits for the slice
//            written     left               under way: at most until (all − buffer) bytes and one slice are written
//
// Threads: one thread makes all calls; the object's own thread only writes files. Blocking: as stated. Source of the
// idea: CheckFreq (Mohan, Phanishayee and Chidambaram, FAST 2021), which copies first and always.
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
  // Starts writing. `writer`, `buffer` and what the slices view must outlive the object; the caller leaves all of them
  // alone until done(), but for the slices after BeforeUpdate.
  // `device`: where the slices lie, null: in the host's memory, as the buffer does.
  BackgroundFile(CheckpointWriter& writer, int64_t step, int rank, std::vector<SliceState> slices, Vector buffer,
                 Device* device = nullptr);
  // Stops after the slice under way and waits for the thread.
  ~BackgroundFile();

  // To be called before the memory of any slice changes; `stream` copies. Cheap after the first time. Blocking: see
  // above.
  void BeforeUpdate(const Stream& stream);
  // The file is there, or has failed. Not blocking.
  bool done() const;
  // Waits, and hands out the result, once. Errors: those of CheckpointWriter::WriteRankFile; what is thrown
  // there (no memory: ResourceExhausted).
  absl::StatusOr<WrittenFile> Finish();

 private:
  absl::StatusOr<WrittenFile> Write(CheckpointWriter& writer, int64_t step, int rank);
  void End(absl::StatusOr<WrittenFile> result);
  absl::Status WriteSlice(size_t index, const CheckpointWriter::AppendSlice& append);
  // Floats of slices [first, n).
  int64_t FloatsFrom(size_t first) const { return first < floats_from_.size() ? floats_from_[first] : 0; }
  void CopyFrom(size_t first, const Stream& stream);
  // The file's thread: `slice` in the host's memory, in `values` where it was not there.
  void BringToHost(SliceState& slice, std::vector<float>& values) const;

  const Vector buffer_;
  Device* const device_;
  std::vector<int64_t> floats_from_;  // [slices]

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SliceState> slices_;  // views of the model, from some slice on of the buffer
  size_t under_way_ = 0;            // slice that the thread writes or will take next
  bool busy_ = false;               // … it has taken it
  bool safe_ = false;               // nothing of the model is read any more
  bool cancelled_ = false;
  bool done_ = false;
  absl::StatusOr<WrittenFile> result_ = absl::UnknownError("not written yet");
  std::thread thread_;  // last: starts when all else is there
};

}  // namespace hadal
