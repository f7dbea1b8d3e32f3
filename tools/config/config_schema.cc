#include "tools/config/config_schema.h"

#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.pb.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"
#include "tools/config/config_value.h"
#include "tools/config/nearest_name.h"

namespace hadal {

// A serialised google.protobuf.FileDescriptorSet of run.proto and compare.proto with their comments, which generated
// code does not contain. Defined in run_schema.cc, made by configs/embed_schema.cmake.
std::string_view RunSchemaBytes();

namespace {

bool IsInteger(const FieldDescriptor& field) {
  const FieldDescriptor::CppType type = field.cpp_type();
  return type == FieldDescriptor::CPPTYPE_INT32 || type == FieldDescriptor::CPPTYPE_INT64 ||
         type == FieldDescriptor::CPPTYPE_UINT64;
}

// A file and a path in its source locations: 4 = message_type of FileDescriptorProto.
using SchemaPath = std::pair<std::string, std::vector<int>>;

SchemaPath FieldLocation(const FieldDescriptor& field) {
  constexpr int kMessageType = 4, kField = 2;
  HADAL_CHECK(field.containing_type()->containing_type() == nullptr);  // messages in the schemas are not nested
  return {field.file()->name(), {kMessageType, field.containing_type()->index(), kField, field.index()}};
}

// Removes the one leading blank of each line of a "// " comment; keeps deeper indentation.
std::string CleanComment(absl::string_view comment) {
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(absl::StripAsciiWhitespace(comment), '\n')) {
    lines.emplace_back(absl::StripTrailingAsciiWhitespace(absl::StripPrefix(line, " ")));
  }
  return absl::StrJoin(lines, "\n");
}

std::map<SchemaPath, std::string> ReadComments() {
  google::protobuf::FileDescriptorSet files;
  const auto bytes = RunSchemaBytes();
  HADAL_CHECK(files.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  std::map<SchemaPath, std::string> comments;
  for (const auto& file : files.file()) {
    for (const auto& location : file.source_code_info().location()) {
      comments[{file.name(), {location.path().begin(), location.path().end()}}] =
          CleanComment(location.leading_comments());
    }
  }
  return comments;
}

// Every path whose last name is `name`.
void CollectPaths(const MessageDescriptor& message, const std::string& parent, absl::string_view name,
                  std::vector<std::string>& paths) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const std::string path = FieldPath(parent, field.name());
    if (field.name() == name) paths.push_back(path);
    if (IsMessage(field)) CollectPaths(*field.message_type(), path, name, paths);
  }
}

}  // namespace

std::optional<Interval> RangeOf(const FieldDescriptor& field) {
  const std::string& text = field.options().GetExtension(config::range);
  if (text.empty()) return std::nullopt;
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(absl::string_view(text).substr(1, text.size() - 2), ", ");
  Interval interval{.low_included = text.front() == '[', .high_included = text.back() == ']'};
  HADAL_CHECK(absl::SimpleAtod(ends.first, &interval.low) && absl::SimpleAtod(ends.second, &interval.high));
  return interval;
}

std::vector<std::string> ValuesOf(const FieldDescriptor& field) {
  const std::string& text = field.options().GetExtension(config::values);
  if (text.empty()) return {};
  return absl::StrSplit(text, ", ");
}

bool IsMessage(const FieldDescriptor& field) { return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE; }

bool MayChangeOnResume(const FieldDescriptor& field) { return field.options().GetExtension(config::may_change); }

std::string TypeText(const FieldDescriptor& field) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return "true or false";
  const char* const one = IsMessage(field)                                      ? "group"
                          : IsInteger(field)                                    ? "integer"
                          : field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ? "text"
                                                                                : "number";
  return field.is_repeated() ? absl::StrCat("list of ", one, "s") : one;
}

std::string AllowedText(const FieldDescriptor& field) {
  if (IsMessage(field)) return "a group: NAME { … }";
  if (const std::vector<std::string> values = ValuesOf(field); !values.empty()) {
    return absl::StrCat("one of \"", absl::StrJoin(values, "\", \""), "\"");
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return "true or false";
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) return "text in quotes";
  const std::string range = field.options().GetExtension(config::range);
  if (range.empty()) return "an integer from 0 to 18446744073709551615";  // seeds
  if (field.is_repeated()) return absl::StrCat("a ", TypeText(field), " in ", range);
  return absl::StrCat(IsInteger(field) ? "an integer in " : "a number in ", range);
}

std::string DefaultText(const FieldDescriptor& field) {
  if (const std::string& from = field.options().GetExtension(config::default_from); !from.empty()) {
    return absl::StrCat("from ", from);
  }
  if (field.is_repeated()) return "empty";
  if (!field.has_default_value()) return "none";
  return ValueText(*google::protobuf::MessageFactory::generated_factory()->GetPrototype(field.containing_type()),
                   field);
}

std::string CommentText(const FieldDescriptor& field) {
  static const auto* const comments = new std::map<SchemaPath, std::string>(ReadComments());
  const auto found = comments->find(FieldLocation(field));
  return found == comments->end() ? "" : found->second;
}

std::string FieldPath(absl::string_view parent, absl::string_view name) {
  return parent.empty() ? std::string(name) : absl::StrCat(parent, ".", name);
}

std::string UnknownFieldText(const MessageDescriptor& message, absl::string_view path, absl::string_view name) {
  const std::string start = path.empty() ? absl::StrCat("there is no field \"", name, "\"")
                                         : absl::StrCat("there is no field \"", name, "\" in ", path);
  std::vector<std::string> names(message.field_count());
  for (int i = 0; i < message.field_count(); ++i) names[i] = message.field(i)->name();
  std::vector<std::string> elsewhere;
  CollectPaths(*message.file()->message_type(0), "", name, elsewhere);
  if (!elsewhere.empty()) {
    return absl::StrCat(start, "; did you mean \"", absl::StrJoin(elsewhere, "\" or \""), "\"?");
  }
  if (const std::string nearest = NearestName(name, names); !nearest.empty()) {
    return absl::StrCat(start, "; did you mean \"", nearest, "\"?");
  }
  return absl::StrCat(start, "; its fields are ", absl::StrJoin(names, ", "));
}

absl::StatusOr<std::vector<const FieldDescriptor*>> FindField(absl::string_view path, const MessageDescriptor& root) {
  std::vector<const FieldDescriptor*> fields;
  const MessageDescriptor* message = &root;
  std::string parent;
  for (absl::string_view name : absl::StrSplit(path, '.')) {
    if (message == nullptr) {
      return InvalidArgumentError(parent, " is ", AllowedText(*fields.back()), " and has no field \"", name, "\"");
    }
    const FieldDescriptor* field = message->FindFieldByName(std::string(name));
    if (field == nullptr) return InvalidArgumentError(UnknownFieldText(*message, parent, name));
    fields.push_back(field);
    parent = FieldPath(parent, name);
    message = field->message_type();
  }
  return fields;
}

}  // namespace hadal
