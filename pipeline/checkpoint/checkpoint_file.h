// Writes one checkpoint directory: streams slices into a safetensors file, and completes it with the manifest.
//
// CheckpointWriter (in a run) and `hadal checkpoint average` (a tool) are built on these two.
// Thread safety: an object is used by one thread at a time. Blocking: all calls write files.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/checkpoint/checkpoint_state.h"
#include "runtime/safetensors.h"

namespace hadal {

// "rank_00000.safetensors".
std::string RankFileName(int rank);

// Streams slices into one file. Memory: that of SafetensorsWriter.
class CheckpointFileWriter {
 public:
  struct Options {
    std::string directory;
    int rank = 0;
    int64_t step = 0;
    uint64_t plan_hash = 0;
    const std::vector<CheckpointParameter>* parameters = nullptr;  // must outlive the writer
  };
  // A slice that will be appended.
  struct Entry {
    int32_t parameter = 0;
    int64_t slice = 0;
    std::array<bool, kStateKinds.size()> kinds = {};  // by StateKind
  };

  // Creates the file in an existing directory, for `entries` in this order.
  // REQUIRES: parameters and slices exist.  Errors: those of SafetensorsWriter.
  static absl::StatusOr<CheckpointFileWriter> Create(const Options& options, const std::vector<Entry>& entries);

  // Appends the state of the next entry.
  // REQUIRES: parameter, slice and kinds are the announced ones; the views have the slice's size.
  absl::Status Append(const SliceState& state);

  // Flushes, fsyncs and closes the file.  REQUIRES: all entries were appended.
  absl::StatusOr<WrittenFile> Finish();

 private:
  CheckpointFileWriter(SafetensorsWriter writer, const Options& options, const std::vector<Entry>& entries);

  SafetensorsWriter writer_;
  const std::vector<CheckpointParameter>* parameters_;
  WrittenFile file_;  // slices without checksums yet; the first appended_ of them are written
  std::vector<std::array<bool, kStateKinds.size()>> kinds_;
  size_t appended_ = 0;
};

// A small file stored with a checkpoint: a vocabulary's contents() under a plain file name.
struct Attachment {
  std::string name;
  std::string contents;
};

// Writes the attachments and, last, the manifest (filling in its `attachments`), opens the result as a reader would,
// and fsyncs.
// Errors: Internal if the files do not form a checkpoint (missing, wrong size, slices missing); file errors.
absl::Status CompleteCheckpointDirectory(const std::string& directory, CheckpointManifest manifest,
                                         const std::vector<Attachment>& attachments);

}  // namespace hadal
