// Checks that all ranks train on the same corpus.
//
// Why: each rank has opened the files that its host has under the corpus's name, and the ranks of a host have shared
// the reading (CorpusShare). Neither shows that the files are the same.
//   other files     the manifests of two ranks differ in vocabularies or shards (sizes, checksums): an error. Otherwise
//                   a rank would silently train on other sentences, or on other ids for them
//   private copies  two ranks of one host have different files, e.g. in containers: what one has read does not verify
//                   the other's copy, so every rank of that host reads every byte
//
// Blocking: all ranks call it. Threads: one per rank.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "runtime/comm/collectives.h"
#include "runtime/data/corpus.h"

namespace hadal {

// A rank's host and what it has under the corpus's name.
struct CorpusCopy {
  std::string host;
  std::string contents;  // one line per file: name, size and checksum
};

// OK if all copies, in rank order, have the same contents. `field` = "data.train".
// Errors: InvalidArgument, naming the ranks whose copy differs from rank 0's, their hosts, and the first line that
// differs.
absl::Status CompareCopies(const std::string& field, std::span<const CorpusCopy> copies);

// `corpus` was opened from `prefix` with a share of the reading; it may be reopened in full.
// Errors: CompareCopies's, the same on all ranks; any rank's of Corpus::Open; those of Communicator::Wait.
absl::Status AgreeOnCorpus(const std::string& field, const std::string& prefix, const std::string& host,
                           Collectives& collectives, Corpus& corpus);

}  // namespace hadal
