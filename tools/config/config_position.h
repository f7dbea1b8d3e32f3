// Finds the field at a position in a text-format file.
//
// Protobuf's parser reports errors only by line and column, often one token late; error messages name the field.
// Positions are those of Protobuf's tokenizer: counted from 0, with a tab stop every 8 columns.
#pragma once

#include <string>
#include <vector>

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

FieldAtPosition FieldAt(absl::string_view text, TextPosition position);

}  // namespace hadal
