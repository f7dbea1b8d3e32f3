// Reads the documents of a file for language models. A file's first bytes tell its format, for Megatron-LM's its name:
//
//   JSON Lines   an object a line, of which one field is the document
//   Megatron-LM  PREFIX.bin and PREFIX.idx (version 1): token ids; each entry of the index's list of documents ends one
//   plain text   blank lines separate documents, whose lines keep their ends; or, without `blank_lines`, each line is
//                one, which ParallelReader reads
// Text may be compressed (OpenText). Thread safety: one thread. Memory: a document, at most kMostLineBytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace hadal {

class DocumentFile {
 public:
  // Returns null for plain text without `blank_lines`. `field`: JSON's. Errors: those of OpenText; InvalidArgument for
  // fairseq's binarised text, which begins with the same bytes, and DataLoss for an index that contradicts itself or
  // its .bin.
  static absl::StatusOr<std::unique_ptr<DocumentFile>> Open(const std::string& path, const std::string& field,
                                                            bool blank_lines);
  virtual ~DocumentFile() = default;

  // Reads the next document, or its ids as decimal numbers with spaces; returns false at the end. If it is not UTF-8,
  // broken JSON or lacks the field, sets `invalid` to a description (else ""). Blocking.
  // Errors: InvalidArgument with the place in the file.
  virtual absl::StatusOr<bool> Next(std::string& text, std::string& invalid) = 0;
  // The line, or document of Megatron-LM's, at which the last document begins, from 1.
  virtual int64_t place() const = 0;
  virtual bool has_ids() const { return false; }
};

// Whether `path` is PREFIX.bin or PREFIX.idx of token ids.
bool IsTokenFile(const std::string& path);

}  // namespace hadal
