// Writes one rank's file of a checkpoint: streams slices into a safetensors file. During training a background thread
// does so (background_file.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "runtime/safetensors.h"

namespace hadal {

struct CheckpointFileOptions {
  std::string directory;  // created if necessary
  int rank = 0;
  int64_t step = 0;
  uint64_t plan_hash = 0;
  const std::vector<CheckpointParameter>* parameters = nullptr;  // must outlive the writer
};

// Streams slices into RankFileName(rank). Memory: that of SafetensorsWriter.
// Thread safety: one thread at a time. Blocking: all calls write files.
class CheckpointFileWriter {
 public:
  // Creates the file and writes its header for `slices`, in this order: parameter, slice, and the kinds whose views are
  // not empty. Does not read the values.
  // REQUIRES: parameters and slices exist; the views have the slices' sizes.
  // Errors: ResourceExhausted (no space; says how much is free), PermissionDenied, NotFound (the directory vanished), …
  static absl::StatusOr<CheckpointFileWriter> Create(const CheckpointFileOptions& options,
                                                     std::span<const SliceState> slices);

  // Appends the next slice. Its views may differ from those passed to Create.  REQUIRES: the same kinds as there.
  absl::Status Append(const SliceState& slice);

  // Flushes, fsyncs and closes the file.  REQUIRES: all slices have been appended.
  absl::StatusOr<WrittenFile> Finish();

 private:
  CheckpointFileWriter(SafetensorsWriter writer, const CheckpointFileOptions& options,
                       std::span<const SliceState> slices);

  SafetensorsWriter writer_;
  const std::vector<CheckpointParameter>* parameters_;
  WrittenFile file_;  // kinds without their checksums yet; the first appended_ slices are written
  size_t appended_ = 0;
};

}  // namespace hadal
