// Adds to an error about several config fields where each of them was set:
//
//   model.heads = 7 is not allowed; it must divide model.d_model = 64
//     --set model.heads=7
//     configs/base.textproto:12:3: model.d_model = 64
//     not set: stop.steps (default: 0)
//
// Why: a run's config is merged from files and --set, and rules between fields are checked after merging, when the
// origin of a value is no longer known. Messages contain the full paths of fields, which are looked up here, so checks
// do not need to carry origins.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hadal {

// Returns `error` with one line for each field that its message names, in that order: where it was last set
// (FILE:LINE:COLUMN or --set), or that it was not set. Returns OK, and errors that name no field, unchanged. Reads the
// files again.
// REQUIRES: LoadConfig(files, overrides) was OK. Thread safety: pure, except for reading files.
absl::Status WithOrigins(const absl::Status& error, const std::vector<std::string>& files,
                         const std::vector<std::string>& overrides);

}  // namespace hadal
