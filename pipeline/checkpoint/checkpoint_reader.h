// CheckpointReader reads a checkpoint without trusting it: the files may be damaged, of another run or malicious.
//
// Open checks the manifest, and that the files exist with the exact sizes. ReadSlices reads the requested slices,
// whichever pipeline layout wrote them, and checks the CRC32C of all returned data. Verify reads everything. Files are
// opened only inside the directory, without following symbolic links; a link, directory, pipe or device in the place of
// a file is damage. Memory is bounded by the headers plus one slice.
// A run in progress removes checkpoints (retention) and replaces them. The reader keeps the directory and its first
// kMostKeptFiles files open, so that it can still read a removed checkpoint. Limitation: it cannot if the checkpoint
// has more files, or if another host removes it on a network file system. The error is then NotFound, not DataLoss, and
// says that the checkpoint was removed.
// Thread safety: one thread at a time per object. Blocking: all calls read files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "runtime/device.h"
#include "runtime/files.h"
#include "runtime/safetensors.h"
#include "runtime/stream.h"

namespace hadal {

// Returns whether an error means that the checkpoint itself is bad, so that an older one may be used instead: NotFound
// (gone) or DataLoss. Other errors (permissions, too many open files, a failing file system, a newer format) do
// not: falling back to an older checkpoint would lose steps unnecessarily.
bool IsDamage(const absl::Status& error);

// For errors of a checkpoint that the user named: if `status` is DataLoss, adds to its message how to list the run's
// intact checkpoints; returns other statuses unchanged.
absl::Status AdviseAnotherCheckpoint(const absl::Status& status);

// How many times the ranks choose a checkpoint, if a run in progress removes each before every rank has opened it.
inline constexpr int kMostChoices = 10;

class CheckpointReader {
 public:
  static constexpr size_t kMostKeptFiles = 64;

  // Errors: NotFound (no such directory, or removed meanwhile; or neither a manifest nor the name of a checkpoint's
  // directory), DataLoss (damaged; says which file and how), FailedPrecondition (newer format); file errors.
  static absl::StatusOr<CheckpointReader> Open(const std::string& directory);
  // As above, with the manifest that another rank has read; reads none.
  static absl::StatusOr<CheckpointReader> Open(const std::string& directory, CheckpointManifest manifest);

  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  const std::string& directory() const { return directory_; }
  const CheckpointManifest& manifest() const { return manifest_; }

  // Reads every file in full. Checks the CRC32C of files, headers, slices and attachments, and that the headers match
  // the manifest. Reports its progress by verified(bytes): the sum of `bytes` is twice the size of the tensors (each is
  // checked by itself and with its file) plus the size of the headers.
  absl::Status Verify(absl::FunctionRef<void(int64_t bytes)> verified = [](int64_t bytes) {});

  // Whether the checkpoint has this state of a slice.  REQUIRES: parameter and slice exist.
  bool Holds(StateKind kind, int32_t parameter, int64_t slice) const {
    return LocationOf(kind, parameter, slice).file >= 0;
  }

  // Fills the non-empty views of `wanted`, in file order. Parameter indices refer to manifest().parameters; compare
  // those with the model's first (CompareParameters). `device`: the device of the views; null: host memory.
  // REQUIRES: parameters and slices exist; the views have the slices' sizes. Errors: DataLoss; FailedPrecondition if
  // moments are requested and the checkpoint has none. After an error the contents of the views are undefined.
  absl::Status ReadSlices(std::span<const SliceState> wanted, Device* device = nullptr);

  // Returns an attached file's contents, CRC checked. Errors: NotFound, DataLoss.
  absl::StatusOr<std::string> ReadAttachment(const std::string& name);

 private:
  // The position of one state kind of one slice.
  struct Location {
    int32_t file = -1;
    int32_t tensor = -1;  // index in the file, in file order
    uint32_t crc32c = 0;
  };

  explicit CheckpointReader(std::string directory) : directory_(std::move(directory)) {}
  absl::Status OpenHere();
  absl::Status ReadManifest();
  // Opens every file of the manifest, compares the sizes, and keeps the first kMostKeptFiles open in kept_.
  absl::Status OpenFiles();
  absl::Status OpenAndKeep(const std::string& name, int64_t bytes);
  // Returns the file `name`, open.
  absl::StatusOr<std::shared_ptr<const FileDescriptor>> FileNamed(const std::string& name) const;
  // Returns `status`, or NotFound if `status` is damage (IsDamage) and directory_ is no longer the opened directory.
  absl::Status UnlessRemoved(const absl::Status& status) const;
  absl::Status VerifyAll(absl::FunctionRef<void(int64_t bytes)> verified);
  absl::Status ReadSlicesHere(std::span<const SliceState> wanted, Device* device);
  absl::StatusOr<std::string> ReadAttachmentHere(const AttachedFile& file) const;
  void IndexLocations();
  const Location& LocationOf(StateKind kind, int32_t parameter, int64_t slice) const;
  // Opens file `file` and checks its header against the manifest. Keeps the most recently used files open.
  absl::StatusOr<SafetensorsReader*> OpenFile(int32_t file);
  absl::Status CheckHeader(const SafetensorsReader& reader, const WrittenFile& file) const;
  absl::Status VerifyFile(int32_t file, absl::FunctionRef<void(int64_t bytes)> verified);

  struct OpenedFile {
    int32_t file = -1;
    std::unique_ptr<SafetensorsReader> reader;
  };

  std::string directory_;
  FileDescriptor opened_directory_;
  std::map<std::string, std::shared_ptr<const FileDescriptor>> kept_;  // by name
  CheckpointManifest manifest_;
  std::vector<int64_t> first_slice_;  // [parameters + 1] running count of slices
  std::vector<Location> locations_;   // [total slices · 3]
  std::vector<OpenedFile> opened_;    // most recently used last
};

}  // namespace hadal
