// One value of a run's config as text: typed parsing of `--set a.b=c`, range checks, printing.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tools/config/config_schema.h"

namespace hadal {

using ConfigMessage = google::protobuf::Message;

// The value of a field that is no group, as text format writes it: 512, 0.1, "1f1b", [3, 7], true. An unset field gives
// its default.
std::string ValueText(const ConfigMessage& message, const FieldDescriptor& field);

// Sets a field that is no group from what a person typed: words need no quotes, a list is "3,7" or "[3, 7]", empty
// clears it.
// Errors: InvalidArgument, "PATH: expected an integer in [1, 64], got \"x\"" for a wrong type, CheckValue's for a wrong
// value.
absl::Status SetFromText(absl::string_view path, const FieldDescriptor& field, absl::string_view text,
                         ConfigMessage& message);

// Whether a field that is set holds a value the schema allows; OK for groups and unset fields.
// Errors: InvalidArgument, "PATH = VALUE is not allowed; it must be an integer in [1, 64]", with the nearest word for
// words.
absl::Status CheckValue(absl::string_view path, const ConfigMessage& message, const FieldDescriptor& field);

}  // namespace hadal
