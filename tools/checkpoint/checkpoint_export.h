// `hadal checkpoint export`: one safetensors file of whole weights, for other programs.
//
// Names and shapes are fairseq's ([out, in]; vectors one-dimensional; a shared matrix once, under its first name).
// Beside FILE: FILE with the ending .json (the model's settings, the config, where it came from) and the vocabularies
// that the checkpoint carries, under their own names. FILE appears whole or not at all.
#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace hadal {

struct CheckpointExportOptions {
  std::string checkpoint;  // directory
  std::string out;         // FILE.safetensors
  bool force = false;      // replace files that are there
};

// Memory: one slice. Errors: AlreadyExists, InvalidArgument (FILE's ending), those of CheckpointReader and of files.
absl::Status ExportCheckpoint(const CheckpointExportOptions& options, std::ostream& out);

}  // namespace hadal
