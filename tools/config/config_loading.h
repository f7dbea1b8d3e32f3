// From files and --set overrides to one RunConfig.
//
// Files are Protobuf text format and are merged in order: a later file overrides an earlier one field by field; a list
// is replaced as a whole by the last file that sets it ("split: []" empties it); of two fields that exclude each other
// (warmup_updates, warmup_fraction) the later one stays. Overrides come last. A directory stands for the
// config.resolved.textproto in it, so that a run directory is a config.
//
// Errors name FILE:LINE:COLUMN (from 1), the field, the value and what is allowed; a misspelt name gets a suggestion.
// All values out of range in a file are reported together. Values are checked one by one here; what fields mean
// together is checked by run_options.h, whose errors get the places where the fields were set from config_origin.h.
// Thread safety: pure but for reading the files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "configs/run.pb.h"

namespace hadal {

// Errors: InvalidArgument for a file that cannot be read, for what is in it and for a bad override.
absl::StatusOr<config::RunConfig> LoadConfig(const std::vector<std::string>& files,
                                             const std::vector<std::string>& overrides);

// Merges one file's text over `config`; `name` stands for the file in errors. On error `config` is unchanged.
absl::Status MergeConfigText(const std::string& text, const std::string& name, config::RunConfig& config);

// Applies one override "a.b=c". On error `config` may hold the wrong value.
absl::Status ApplyOverride(absl::string_view override_text, config::RunConfig& config);

// Where `file` sets the field at `path`, of a list its first entry: "FILE:LINE:COLUMN"; "" where it does not, or cannot
// be read.
std::string FieldPlace(const std::string& file, absl::string_view path);

// Reads one file of another schema (configs/compare.proto, configs/machine.proto), with the same checks and the same
// errors.
absl::Status LoadMessage(const std::string& file, google::protobuf::Message& message);

}  // namespace hadal
