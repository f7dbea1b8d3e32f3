// From a place in a text-format file to the field written there.
//
// Protobuf's parser reports errors by line and column only, often one token late; a person wants the field's name.
// Positions are the tokenizer's: counted from 0, a tab reaches to the next multiple of 8.
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
  bool in_value = false;          // the position lies in the field's value, or the value is missing there
};

FieldAtPosition FieldAt(absl::string_view text, TextPosition position);

}  // namespace hadal
