// Manages the output folder of `hadal prepare`: allows one writer at a time, replaces corpora only if requested, and
// leaves no files of earlier corpora behind.
//
// Order of writing, so that an interruption never leaves a mixture of two corpora: the old manifests are deleted, files
// are overwritten, the new manifests are written, then files that only the old manifests named are deleted. A process
// that is interrupted leaves its lock file, which tells the next one that shards without a manifest may exist.
// Thread safety: one thread.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/files.h"

namespace hadal {

// The file of the cleaning report.
inline constexpr char kCleaningReport[] = "cleaning.json";

class PrepareOutput {
 public:
  // Returns AlreadyExists if `folder` contains a corpus and `overwrite` is false. Writes nothing.
  static absl::Status CheckFree(const std::string& folder, bool overwrite);
  // Returns InvalidArgument if a file that preparing may replace or delete in `folder` is one of `inputs` under any
  // name. `extension`: of the vocabularies.
  static absl::Status CheckInputs(const std::string& folder, std::string_view extension,
                                  const std::vector<std::string>& inputs);

  // Creates the folder if it is missing, and locks it while the object lives. The lock file of a killed process does
  // not block.
  // Errors: CheckFree's; FailedPrecondition if another process holds the lock; those of creating files.
  static absl::StatusOr<PrepareOutput> Take(const std::string& folder, bool overwrite);
  PrepareOutput(PrepareOutput&&) = default;
  ~PrepareOutput();

  // Deletes the manifests of existing corpora, and their cleaning report. Call it when only writing is left to do.
  absl::Status Clear();

  // Deletes shards of earlier corpora, or of an interrupted run, that none of `manifests` names. REQUIRES: `manifests`
  // are written.
  absl::Status RemoveSurplus(const std::vector<CorpusManifest>& manifests);

 private:
  PrepareOutput(std::string folder, FileDescriptor lock, bool was_left_unfinished)
      : folder_(std::move(folder)), lock_(std::move(lock)), was_left_unfinished_(was_left_unfinished) {}

  std::string folder_;
  FileDescriptor lock_;
  bool was_left_unfinished_;          // an earlier process was interrupted
  bool is_unfinished_ = false;        // between Clear and RemoveSurplus
  std::set<std::string> old_shards_;  // file names
};

}  // namespace hadal
