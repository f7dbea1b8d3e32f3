// Merges files and --set overrides into one RunConfig.
//
// Files are Protobuf text format, merged in order: a later file overrides an earlier one field by field. A list is
// replaced as a whole by the last file that sets it ("split: []" empties it). Of two fields that exclude each other
// (warmup_updates, warmup_fraction) the one that is set later is kept. Overrides come last. A directory stands for the
// config.resolved.textproto in it, so a run directory can be used as a config.
// Errors name FILE:LINE:COLUMN (from 1), the field, the value and the allowed values; a misspelt name gets a
// suggestion. All out-of-range values of a file are reported together. Values are checked one by one here; rules
// between fields are checked by run_options.h, and config_origin.h adds to those errors where the fields were set.
// Thread safety: pure, except for reading files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "configs/run.pb.h"
#include "tools/command_line.h"

namespace hadal {

// Errors: InvalidArgument for an unreadable file, an invalid field or value, or a bad override.
absl::StatusOr<config::RunConfig> LoadConfig(const std::vector<std::string>& files,
                                             const std::vector<std::string>& overrides);

// Merges one file's text over `config`; `name` stands for the file in errors. On error `config` is unchanged.
absl::Status MergeConfigText(const std::string& text, const std::string& name, config::RunConfig& config);

// Applies one override "a.b=c". On error `config` may hold the wrong value.
absl::Status ApplyOverride(absl::string_view override_text, config::RunConfig& config);

// Returns where `file` sets the field at `path` (for a list, its first entry): "FILE:LINE:COLUMN"; "" if it does not,
// or cannot be read.
std::string FieldPosition(const std::string& file, absl::string_view path);

// Reads one file of another schema (configs/compare.proto, configs/machine.proto), with the same checks and errors.
absl::Status LoadMessage(const std::string& file, google::protobuf::Message& message);

// The config arguments that several subcommands share: FILES… and repeated --set FIELD=VALUE.
struct ConfigArguments {
  std::vector<std::string> files;      // base first, later ones override
  std::vector<std::string> overrides;  // "a.b=c"
};

// Adds FILES… and --set to `command`. CommandLine::Run fills `arguments`, which must outlive it.
void AddConfigArguments(Command command, ConfigArguments& arguments);

}  // namespace hadal
