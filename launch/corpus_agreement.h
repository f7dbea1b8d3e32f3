// That all ranks train on one corpus. Each rank has opened the files that its own host has under the corpus's name, and
// the ranks of a host have read the bytes together, each its part (CorpusShare); nothing of that says that they were
// the same files.
//
//   other files     what the manifests say of vocabularies and shards (sizes, checksums) is not the same on all ranks:
//                   an error. A rank would train on other sentences, or on other ids for them, without a word
//   private copies  the files of two ranks of one host are not one and the same, each has a copy of its own (in a
//                   container): then what one has read says nothing of the other's, and every rank of that host reads
//                   every byte
//
// Blocking: all ranks call it. Threads: one a rank.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "runtime/comm/collectives.h"
#include "runtime/data/corpus.h"

namespace hadal {

// A rank's host and what it has under a corpus's name.
struct CorpusCopy {
  std::string host;
  std::string contents;  // a line a file: its name, size and checksum
};

// OK where all copies have the same contents. `field` = "data.train". In rank order.
// Errors: InvalidArgument, naming the ranks that have others than rank 0, their hosts, and the first line that differs.
absl::Status CompareCopies(const std::string& field, std::span<const CorpusCopy> copies);

// `corpus` was opened from `prefix` with a share of the reading; it may be opened again.
// Errors: CompareCopies's, the same on all ranks; Corpus::Open's of any rank; those of transfers.
absl::Status AgreeOnCorpus(const std::string& field, const std::string& prefix, const std::string& host,
                           Collectives& collectives, Corpus& corpus);

}  // namespace hadal
