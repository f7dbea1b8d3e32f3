// `hadal checkpoint export` writes all weights to one safetensors file for other programs.
//
// Names and shapes are fairseq's ([out, in]; vectors one-dimensional; a shared matrix once, under its first name). Next
// to FILE it writes FILE with the extension .json (model settings, config, origin) and the vocabularies in the
// checkpoint, under their own names. FILE appears whole or not at all.
#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace hadal {

struct CheckpointExportOptions {
  std::string checkpoint;  // or a run directory: its newest
  std::string out;         // FILE.safetensors
  bool force = false;      // replace existing files
};

// Memory: one slice. Errors: AlreadyExists; InvalidArgument (FILE's extension); those of OpenCheckpoint and of files.
absl::Status ExportCheckpoint(const CheckpointExportOptions& options, std::ostream& out);

}  // namespace hadal
