// CheckpointReader reads a checkpoint that may be damaged, foreign or hostile.
//
// Open checks the manifest, and that its files exist with their exact sizes. ReadSlices reads what a rank wants,
// whichever layout wrote it, and checks the CRC32C of all it returns. Verify reads everything. Files are opened only
// inside the directory, never through symbolic links. Memory is bounded by the headers plus one slice.
// Thread safety: an object is used by one thread at a time. Blocking: all calls read files.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "runtime/device.h"
#include "runtime/safetensors.h"

namespace hadal {

// Whether an error says that the checkpoint itself is bad, so that an older one may replace it: NotFound (incomplete)
// or DataLoss. Other errors do not (permissions, too many open files, a failing file system, a format of another
// version): to reject the checkpoint for one of them would lose good steps.
bool IsDamage(const absl::Status& error);

// For a checkpoint that the user has named, where no other one may take its place: a DataLoss with how to find the
// run's whole checkpoints behind its message; any other status as it is.
absl::Status AdviseAnotherCheckpoint(const absl::Status& status);

class CheckpointReader {
 public:
  // Errors: NotFound (no directory or manifest), DataLoss (damaged; says which file and how), FailedPrecondition (newer
  // format); file errors.
  static absl::StatusOr<CheckpointReader> Open(const std::string& directory);
  // The same with the directory's manifest, which another rank has read.
  static absl::StatusOr<CheckpointReader> Open(const std::string& directory, CheckpointManifest manifest);

  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  const std::string& directory() const { return directory_; }
  const CheckpointManifest& manifest() const { return manifest_; }

  // Reads every file in full. Checks the CRC32C of files, headers, slices and attachments, and that the headers list
  // what the manifest lists.
  absl::Status Verify();

  // Fills the non-empty views of `wanted`, in file order. Parameters are indices into manifest().parameters; first
  // compare those with the model's (CompareParameters). `device`: where the views are; null: host memory.
  // REQUIRES: parameters and slices exist; the views have the slices' sizes. Errors: DataLoss; FailedPrecondition if
  // moments are wanted of a checkpoint without moments. After an error the views' contents are undefined.
  absl::Status ReadSlices(std::span<const SliceState> wanted, Device* device = nullptr);

  // Returns an attached file's contents, CRC checked. Errors: NotFound, DataLoss.
  absl::StatusOr<std::string> ReadAttachment(const std::string& name);

 private:
  // The position of one kind of one slice.
  struct Place {
    int32_t file = -1;
    int32_t tensor = -1;  // index in the file, in file order
    uint32_t crc32c = 0;
  };

  CheckpointReader(std::string directory, CheckpointManifest manifest);
  void IndexPlaces();
  const Place& PlaceOf(StateKind kind, int32_t parameter, int64_t slice) const;
  // Opens file `file` and checks its header against the manifest. Keeps the most recently used files open.
  absl::StatusOr<SafetensorsReader*> OpenFile(int32_t file);
  absl::Status CheckHeader(const SafetensorsReader& reader, const WrittenFile& file) const;
  absl::Status VerifyFile(int32_t file);

  struct OpenedFile {
    int32_t file = -1;
    std::unique_ptr<SafetensorsReader> reader;
  };

  std::string directory_;
  CheckpointManifest manifest_;
  std::vector<int64_t> first_slice_;  // [parameters + 1] running count of slices
  std::vector<Place> places_;         // [total slices · 3]
  std::vector<OpenedFile> opened_;    // most recently used last
};

}  // namespace hadal
