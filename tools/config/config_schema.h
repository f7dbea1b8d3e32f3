// Reads what a schema (configs/run.proto for runs, configs/compare.proto for grids) says about a field: type, default,
// allowed values, comment.
//
// Everything comes from the descriptor and its options, so error messages, `hadal config explain` and checks always
// agree. Fields are named by dotted paths from the root, which is the first message of the schema's file:
// "model.residual.encoder.value_gain". Thread safety: all functions are pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "configs/run.pb.h"

namespace hadal {

using FieldDescriptor = google::protobuf::FieldDescriptor;
using MessageDescriptor = google::protobuf::Descriptor;

// The allowed numbers of a field; "[0, 1)" contains 0 but not 1. No interval contains NaN.
struct Interval {
  double low = 0;
  double high = 0;
  bool low_included = true;
  bool high_included = true;

  bool Contains(double value) const {
    return (low_included ? value >= low : value > low) && (high_included ? value <= high : value < high);
  }
};

// The allowed range of a number; nullopt if the schema has none.
std::optional<Interval> RangeOf(const FieldDescriptor& field);
// The allowed words; empty if the schema has none.
std::vector<std::string> ValuesOf(const FieldDescriptor& field);
// Whether the field is a group of fields.
bool IsMessage(const FieldDescriptor& field);
// The schema's option may_change: a resumed run may change the field without --accept-changes.
bool MayChangeOnResume(const FieldDescriptor& field);

// "integer", "number", "true or false", "text", "list of integers", "group".
std::string TypeText(const FieldDescriptor& field);
// Describes the allowed values: "an integer in [1, 64]", "one of \"none\", \"all\"", "true or false", "text in quotes".
std::string AllowedText(const FieldDescriptor& field);
// "512", "\"1f1b\"", "from model.residual.method", "none".
std::string DefaultText(const FieldDescriptor& field);
// The comment above the field in run.proto, lines separated by '\n'.
std::string CommentText(const FieldDescriptor& field);

// "" + "model" = "model"; "model" + "heads" = "model.heads".
std::string FieldPath(absl::string_view parent, absl::string_view name);

// The error text for `name`, which is not a field of `message`; `path` is that of `message`. The text suggests the
// nearest name, or the same name elsewhere in the schema, or lists all names.
std::string UnknownFieldText(const MessageDescriptor& message, absl::string_view path, absl::string_view name);

// Returns the fields along a dotted path from `root`; the last one is the field named by the path.
// Errors: InvalidArgument with a suggestion, for an unknown or empty path.
absl::StatusOr<std::vector<const FieldDescriptor*>> FindField(
    absl::string_view path, const MessageDescriptor& root = *config::RunConfig::descriptor());

}  // namespace hadal
