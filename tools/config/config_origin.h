// Where the fields of a merged config were set, for errors about what several of them mean together:
//
//   model.heads = 7 is not allowed; it must divide model.d_model = 64
//     --set model.heads=7
//     configs/base.textproto:12:3: model.d_model = 64
//     not set: stop.steps (default: 0)
//
// Why: a run's config is made of files and --set; what is wrong with two fields together is found in the merged config,
// which no longer knows. Messages name fields by their whole paths, so that these are found in the message: no check
// carries them along.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hadal {

// `error` with a line for each field that its message names, in that order: who set it last, FILE:LINE:COLUMN or --set,
// or that nobody did. OK stays OK; an error that names no field stays as it is.  REQUIRES: LoadConfig(files, overrides)
// was OK; the files are read again. Thread safety: pure but for that.
absl::Status WithOrigins(const absl::Status& error, const std::vector<std::string>& files,
                         const std::vector<std::string>& overrides);

}  // namespace hadal
