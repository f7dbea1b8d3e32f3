// What the schema of a run (configs/run.proto), or of a grid (configs/compare.proto), says about a field: type,
// default, what is allowed, its comment.
//
// Everything is read off the descriptor and its options, so that error texts, `hadal config explain` and checks cannot
// disagree. Fields are named by dotted paths from the root, the first message of the schema's file:
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

// The numbers a field may have; "[0, 1)" contains 0 and not 1. NaN lies in no interval.
struct Interval {
  double low = 0;
  double high = 0;
  bool low_included = true;
  bool high_included = true;

  bool Contains(double value) const {
    return (low_included ? value >= low : value > low) && (high_included ? value <= high : value < high);
  }
};

// nullopt where the schema states none.
std::optional<Interval> RangeOf(const FieldDescriptor& field);
// The allowed words, empty where the schema states none.
std::vector<std::string> ValuesOf(const FieldDescriptor& field);
bool IsMessage(const FieldDescriptor& field);
bool MayChangeOnResume(const FieldDescriptor& field);

// "integer", "number", "true or false", "text", "list of integers", "group".
std::string TypeText(const FieldDescriptor& field);
// What a value must be: "an integer in [1, 64]", "one of \"none\", \"all\"", "true or false", "text in quotes".
std::string AllowedText(const FieldDescriptor& field);
// "512", "\"1f1b\"", "from model.residual.method", "none".
std::string DefaultText(const FieldDescriptor& field);
// The comment above the field in run.proto, lines separated by '\n'.
std::string CommentText(const FieldDescriptor& field);

// "" + "model" = "model"; "model" + "heads" = "model.heads".
std::string JoinPath(absl::string_view parent, absl::string_view name);

// What to answer to a name that `message`, found at `path`, has no field of: the nearest name, the same name elsewhere
// in its schema, or all the names.
std::string UnknownFieldText(const MessageDescriptor& message, absl::string_view path, absl::string_view name);

// The fields along a dotted path from `root`, the last one being the field named.
// Errors: InvalidArgument with a suggestion, for an unknown or empty path.
absl::StatusOr<std::vector<const FieldDescriptor*>> FindField(
    absl::string_view path, const MessageDescriptor& root = *config::RunConfig::descriptor());

}  // namespace hadal
