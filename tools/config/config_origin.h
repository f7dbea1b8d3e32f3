// Adds to an error about several config fields where each of them was set:
//
//   model.heads = 7 is not allowed; it must divide model.d_model = 64
//     --set model.heads=7
//     configs/base.textproto:12:3: model.d_model = 64
// A field that is not set gets a line such as "not set: model.heads (default: 8)".
// Why: a run's config is merged from files and --set, and rules between fields are checked after merging, when the
// origin of a value is no longer known. Messages contain the full paths of fields, by which the functions here find the
// origins.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hadal {

struct TextPosition {
  int line = 0;
  int column = 0;
  auto operator<=>(const TextPosition&) const = default;  // NOLINT(modernize-use-nullptr): of a 0 in what it expands to
};

// The last field named at or before a position.
struct FieldAtPosition {
  std::vector<std::string> path;  // names from the root down; empty when no field is named before the position
  TextPosition name;              // where its name starts
  TextPosition value;             // where its value starts, if in_value
  std::string value_text;         // the value as written, up to the next blank, comma, semicolon or bracket
  bool in_value = false;          // the position is in the field's value, or the value is missing there
};

// Finds the field at a position in a text-format file.
//
// Protobuf's parser reports errors only by line and column, often one token late; error messages name the field.
// Positions are those of Protobuf's tokenizer: line and column are counted from 0, with a tab stop every 8 columns.
// Messages print both counted from 1.
FieldAtPosition FieldAt(absl::string_view text, TextPosition position);

// Returns `error` with one line for each field that its message names, in that order: where it was last set
// (FILE:LINE:COLUMN, counted from 1, or --set), or that it was not set. Returns OK, and errors that name no field,
// unchanged. Reads the files again.
// REQUIRES: LoadConfig(files, overrides) was OK. Thread safety: pure, except for reading files.
absl::Status WithOrigins(const absl::Status& error, const std::vector<std::string>& files,
                         const std::vector<std::string>& overrides);

// Detects config files without effect (a layer is one of the files that are merged): returns a sentence for each file
// whose fields are all set by later files, at least one to another value, as when the file of a model size precedes the
// base config. Empty lists count as not set.
// Errors: those of LoadConfig.
absl::StatusOr<std::vector<std::string>> LayersWithoutEffect(const std::vector<std::string>& files);

}  // namespace hadal
