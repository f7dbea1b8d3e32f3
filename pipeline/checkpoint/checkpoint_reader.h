// Reading a checkpoint that may be damaged, foreign or hostile.
//
// Open checks the manifest and that its files are there with their exact sizes; ReadSlices reads what a rank wants,
// whatever layout wrote it, and checks the CRC32C of all it returns; Verify reads everything. Files are opened inside
// the directory only, never through symbolic links, and memory stays bounded by headers plus one slice. Thread safety:
// one thread at a time an object. Blocking: all calls read files.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/checkpoint/checkpoint_state.h"
#include "runtime/device.h"
#include "runtime/safetensors.h"

namespace hadal {

// Whether an error says that a checkpoint itself is bad, so that an older one may take its place: NotFound (not all
// there), DataLoss. No other does (permissions, too many open files, a file system that fails, a format of another
// version): giving the checkpoint up for it would lose good steps.
bool IsDamage(const absl::Status& error);

class CheckpointReader {
 public:
  // Errors: NotFound (no directory or manifest), DataLoss (damaged; says which file and how), FailedPrecondition (newer
  // format); those of files.
  static absl::StatusOr<CheckpointReader> Open(const std::string& directory);

  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  const std::string& directory() const { return directory_; }
  const CheckpointManifest& manifest() const { return manifest_; }

  // Reads every file whole: CRC32C of files, headers, slices and attachments, and that headers list what the manifest
  // lists.
  absl::Status Verify();

  // Fills the non-empty views of `wanted`, in file order. Parameters are indices into manifest().parameters; compare
  // those with the model's first (CompareParameters). REQUIRES: parameter and slice exist; sizes of the views are those
  // of the slices. Errors: DataLoss; FailedPrecondition when moments are wanted of a checkpoint without; the views'
  // contents are then undefined.
  // `device`: where the views lie, null: in the host's memory.
  absl::Status ReadSlices(std::span<const SliceState> wanted, Device* device = nullptr);

  // An attached file's contents, CRC checked. Errors: NotFound, DataLoss.
  absl::StatusOr<std::string> ReadAttachment(const std::string& name);

 private:
  // Where one kind of one slice lies.
  struct Place {
    int32_t file = -1;
    int32_t tensor = -1;  // index in the file, in file order
    uint32_t crc32c = 0;
  };

  CheckpointReader(std::string directory, CheckpointManifest manifest);
  void IndexPlaces();
  const Place& PlaceOf(StateKind kind, int32_t parameter, int64_t slice) const;
  // Opens file `file` and checks its header against the manifest; keeps the most recently used ones open.
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
