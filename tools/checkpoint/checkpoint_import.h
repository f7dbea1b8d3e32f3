// `hadal checkpoint import` makes a checkpoint of a model that another program holds.
//
// SOURCE is FILE.safetensors, with FILE.json and the vocabularies beside it, as `hadal checkpoint export` writes it; or
// a folder of Hugging Face transformers (FSMT, M2M100), or fairseq's checkpoint.pt. The Python package hadal_torch
// converts these two first (docs/interchange.md). The result holds weights only: enough to translate, to score, to
// export and for `hadal train --init-from`.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hadal {

struct CheckpointImportOptions {
  std::string source;
  std::string out;                        // directory of the checkpoint
  std::vector<std::string> dictionaries;  // fairseq's dict.txt: none, one, or those of source and target
};

// Memory: one slice; with Python, the whole model there. Errors: AlreadyExists; NotFound; DataLoss, naming what is
// missing, unknown or of another shape than the settings give; those of RunHadalTorch.
absl::Status ImportCheckpoint(const CheckpointImportOptions& options, std::ostream& out);

}  // namespace hadal
