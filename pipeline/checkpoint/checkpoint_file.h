// The files of one checkpoint directory: slices streamed into a safetensors file, and the manifest that completes it.
//
// CheckpointWriter (a running job) and `hadal checkpoint average` (a tool) are built on these two.
// Thread safety: one thread at a time an object. Blocking: all calls write files.
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

// Streams slices into one file. Memory: what SafetensorsWriter needs.
class CheckpointFileWriter {
 public:
  struct Options {
    std::string directory;
    int rank = 0;
    int64_t step = 0;
    uint64_t plan_hash = 0;
    const std::vector<CheckpointParameter>* parameters = nullptr;  // must outlive the writer
  };
  // What will be appended, in order.
  struct Entry {
    int32_t parameter = 0;
    int64_t slice = 0;
    std::array<bool, kStateKinds.size()> kinds = {};  // by StateKind
  };

  // Creates the file in an existing directory.
  // REQUIRES: parameters and slices exist.  Errors: those of SafetensorsWriter.
  static absl::StatusOr<CheckpointFileWriter> Create(const Options& options, const std::vector<Entry>& entries);

  // The next entry's state.
  // REQUIRES: parameter, slice and kinds are those announced, views have the slice's size.
  absl::Status Append(const SliceState& state);

  // Flushes, fsyncs and closes.  REQUIRES: all entries were appended.
  absl::StatusOr<WrittenFile> Finish();

 private:
  CheckpointFileWriter(SafetensorsWriter writer, const Options& options, const std::vector<Entry>& entries);

  SafetensorsWriter writer_;
  const std::vector<CheckpointParameter>* parameters_;
  WrittenFile file_;  // slices without checksums yet; appended_ of them have their data
  std::vector<std::array<bool, kStateKinds.size()>> kinds_;
  size_t appended_ = 0;
};

// A small file to carry along: a vocabulary's contents() under a plain file name.
struct Attachment {
  std::string name;
  std::string contents;
};

// Writes attachments and, last, the manifest (whose `attachments` it fills), opens the result as a reader would, and
// fsyncs.
// Errors: Internal when the files make no checkpoint (not there, wrong size, slices missing); those of files.
absl::Status CompleteCheckpointDirectory(const std::string& directory, CheckpointManifest manifest,
                                         const std::vector<Attachment>& attachments);

}  // namespace hadal
