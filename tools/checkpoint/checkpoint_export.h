// `hadal checkpoint export` writes all weights to one safetensors file, or in another program's format.
//
// Names and shapes are fairseq's ([out, in]; vectors one-dimensional; a shared matrix once, under its first name). Next
// to FILE it writes FILE with the extension .json (model settings, config, origin) and the vocabularies in the
// checkpoint, under their own names. FILE appears whole or not at all. A file that has a vocabulary's name stays: with
// the same contents several exports share it, with others it is an error.
// With a format, the Python package hadal_torch converts such a file to a folder (docs/interchange.md).
#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace hadal {

struct CheckpointExportOptions {
  std::string checkpoint;    // or a run directory: its newest
  std::string out;           // FILE.safetensors; with a format, a folder that does not exist yet
  std::string format;        // "": plain; "huggingface", "ctranslate2", "fairseq"
  std::string quantization;  // of ctranslate2's weights: "int8", …; "": float32
  bool force = false;        // replace FILE and its .json
};

// Memory: one slice; with a format, the whole model in Python. Errors: AlreadyExists; InvalidArgument (FILE's
// extension, what the format cannot express); those of OpenCheckpoint, of RunHadalTorch and of files.
absl::Status ExportCheckpoint(const CheckpointExportOptions& options, std::ostream& out);

}  // namespace hadal
