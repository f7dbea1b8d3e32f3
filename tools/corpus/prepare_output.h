// The folder that `hadal prepare` writes into: one process at a time, nothing replaced unasked, nothing of before left
// behind.
//
// Order, so that an end at any moment leaves no corpus that is half another: the manifests of before go first, then
// files are written over, then come the new manifests, and last goes what only the old ones named. A process that ends
// in between leaves its lock's file: the next one then knows that shards may lie there that no manifest names.
// Thread safety: one thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/files.h"

namespace hadal {

class PrepareOutput {
 public:
  // AlreadyExists where `folder` holds a corpus that `overwrite` does not allow to replace; writes nothing.
  static absl::Status CheckFree(const std::string& folder, bool overwrite);

  // Makes the folder where it is missing, and keeps others out while the object lives. A lock's file that a killed
  // process leaves keeps nobody out.
  // Errors: CheckFree's; FailedPrecondition where another process prepares there; those of making a file.
  static absl::StatusOr<PrepareOutput> Take(const std::string& folder, bool overwrite);
  PrepareOutput(PrepareOutput&&) = default;
  ~PrepareOutput();

  // From here on corpora that are there are no corpora any more. To be called when nothing but writing is left to do.
  absl::Status Clear();

  // Removes the shards that the corpora of before had, or that one left which was not finished, and that none of
  // `manifests`, which are written, names.
  absl::Status RemoveSurplus(const std::vector<CorpusManifest>& manifests);

 private:
  PrepareOutput(std::string folder, FileDescriptor lock, bool was_left_unfinished)
      : folder_(std::move(folder)), lock_(std::move(lock)), was_left_unfinished_(was_left_unfinished) {}

  std::string folder_;
  FileDescriptor lock_;
  bool was_left_unfinished_;          // by a process before
  bool is_unfinished_ = false;        // between Clear and RemoveSurplus
  std::set<std::string> old_shards_;  // names of files
};

}  // namespace hadal
