// Converts values of config fields from and to text: typed parsing of `--set a.b=c`, range checks, printing.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tools/config/config_schema.h"

namespace hadal {

using ConfigMessage = google::protobuf::Message;

// Returns the value of a field that is not a message, in text format: 512, 0.1, "1f1b", [3, 7], true. For an unset
// field, returns its default.
std::string ValueText(const ConfigMessage& message, const FieldDescriptor& field);

// Sets a field that is not a message from command-line text: words need no quotes; a list is "3,7" or "[3, 7]"; empty
// text clears a list.
// Errors: InvalidArgument, "PATH: expected an integer in [1, 64], got \"x\"", for a wrong type; those of CheckValue for
// a value that is not allowed.
absl::Status SetFromText(absl::string_view path, const FieldDescriptor& field, absl::string_view text,
                         ConfigMessage& message);

// Checks that a set field has a value that the schema allows; OK for unset fields and for fields that are messages.
// Errors: InvalidArgument, "PATH = VALUE is not allowed; it must be an integer in [1, 64]". If the field allows certain
// words and one of them is similar to the value (NearestName), the message continues: "; did you mean \"WORD\"?"
absl::Status CheckValue(absl::string_view path, const ConfigMessage& message, const FieldDescriptor& field);

}  // namespace hadal
