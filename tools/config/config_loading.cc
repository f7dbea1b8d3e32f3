#include "tools/config/config_loading.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/config/config_origin.h"
#include "tools/config/config_schema.h"
#include "tools/config/config_value.h"

namespace hadal {
namespace {

using google::protobuf::TextFormat;
using Locations = TextFormat::ParseInfoTree;

// "file:3:7", counted from 1 as editors do.
std::string PlaceName(absl::string_view file, TextPosition position) {
  return absl::StrCat(file, ":", position.line + 1, ":", position.column + 1);
}

std::string PositionText(absl::string_view file, TextPosition position) {
  return absl::StrCat(PlaceName(file, position), ": ");
}

// Keeps the first error of a parse; later ones are often consequences.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (!message_) message_ = message, position_ = {line, column};
  }
  const std::string& message() const { return *message_; }
  bool empty() const { return !message_; }
  TextPosition position() const { return position_; }

 private:
  std::optional<std::string> message_;
  TextPosition position_;
};

// A value of the wrong type, or none.
std::string WrongTypeText(const FieldDescriptor& field, const FieldAtPosition& at, const std::string& message) {
  std::string got = at.value_text;
  if (got.empty())
    got = message.substr(std::min(message.size(), message.rfind(' ') + 1));  // "Expected integer, got: ["
  if (got.empty() || got == "}") got = "nothing";
  const bool wants_quotes = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING && !at.value_text.empty() &&
                            !absl::StartsWith(at.value_text, "\"");
  return absl::StrCat("expected ", AllowedText(field), ", got ", got,
                      wants_quotes ? absl::StrCat("; put it in quotes: \"", at.value_text, "\"") : "");
}

// An error of the file's structure in or after `field` (null before the first field).
std::string StructureText(const FieldDescriptor* field, const std::string& path, const std::string& message) {
  if (message == "Expected identifier, got: ") return "the file ends before a group is closed; a \"}\" is missing";
  if (absl::StartsWith(message, "Interpreting non ascii")) {
    return "a non-ASCII character is outside quotes and comments";
  }
  if (absl::EndsWith(message, "specified multiple times.")) return absl::StrCat(path, " is given twice in this file");
  if (absl::StrContains(message, "another member of oneof")) {
    const auto& oneof = *field->containing_oneof();
    std::vector<std::string> names(oneof.field_count());
    for (int i = 0; i < oneof.field_count(); ++i) names[i] = oneof.field(i)->name();
    return absl::StrCat(path, ": a file gives only one of ", absl::StrJoin(names, ", "));
  }
  if (field != nullptr && IsMessage(*field) && absl::StartsWith(message, "Expected \"{\"")) {
    return absl::StrCat(path, " is a group; write ", field->name(), " { … }");
  }
  std::string text = absl::StrReplaceAll(message, {{"Expected identifier", "expected the name of a field"}});
  return path.empty() ? text : absl::StrCat("after ", path, ": ", text);
}

// Rewrites the parser's error in terms of fields and values.
absl::Status ExplainParseError(const std::string& text, const std::string& name, const FirstError& error,
                               const MessageDescriptor& root) {
  const FieldAtPosition at = FieldAt(text, error.position());
  const MessageDescriptor* message = &root;
  const FieldDescriptor* field = nullptr;
  std::string path;
  for (const std::string& part : at.path) {
    field = message == nullptr ? nullptr : message->FindFieldByName(part);
    if (field == nullptr) {
      const std::string what = message == nullptr ? absl::StrCat(path, " is no group and has no field \"", part, "\"")
                                                  : UnknownFieldText(*message, path, part);
      return InvalidArgumentError(PositionText(name, at.name), what);
    }
    path = FieldPath(path, part);
    message = field->message_type();
  }
  const bool wrong_type = at.in_value || absl::StartsWith(error.message(), "Invalid value for boolean");
  if (field != nullptr && !IsMessage(*field) && wrong_type) {
    return InvalidArgumentError(PositionText(name, at.value), path, ": ", WrongTypeText(*field, at, error.message()));
  }
  return InvalidArgumentError(PositionText(name, error.position()), StructureText(field, path, error.message()));
}

// Appends an error for each value in `message` that the schema does not allow.
void CheckValues(const ConfigMessage& message, const Locations& locations, const std::string& parent,
                 const std::string& file, std::vector<std::string>& errors) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string path = FieldPath(parent, field->name());
    if (IsMessage(*field) && field->is_repeated()) {
      for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
        CheckValues(message.GetReflection()->GetRepeatedMessage(message, field, i),
                    *locations.GetTreeForNested(field, i), path, file, errors);
      }
    } else if (IsMessage(*field)) {
      CheckValues(message.GetReflection()->GetMessage(message, field), *locations.GetTreeForNested(field, -1), path,
                  file, errors);
    } else if (const absl::Status status = CheckValue(path, message, *field); !status.ok()) {
      const TextFormat::ParseLocation at = locations.GetLocation(field, field->is_repeated() ? 0 : -1);
      errors.push_back(absl::StrCat(PositionText(file, {at.line, at.column}), status.message()));
    }
  }
}

// Clears in `config` every list that the parsed file sets, including empty ones.
void ClearWrittenLists(const ConfigMessage& layer, const Locations& locations, ConfigMessage& config) {
  const MessageDescriptor& descriptor = *layer.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor* field = descriptor.field(i);
    if (field->is_repeated() && locations.GetLocation(field, 0).line >= 0) {
      config.GetReflection()->ClearField(&config, field);
    } else if (IsMessage(*field) && layer.GetReflection()->HasField(layer, field)) {
      ClearWrittenLists(layer.GetReflection()->GetMessage(layer, field), *locations.GetTreeForNested(field, -1),
                        *config.GetReflection()->MutableMessage(&config, field));
    }
  }
}

// Parses one file of any schema and checks its values.
absl::Status ParseLayer(const std::string& text, const std::string& name, ConfigMessage& layer, Locations& locations) {
  FirstError error;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&locations);
  if (!parser.ParseFromString(text, &layer) || !error.empty()) {
    return ExplainParseError(text, name, error, *layer.GetDescriptor());
  }
  std::vector<std::string> errors;
  CheckValues(layer, locations, "", name, errors);
  return errors.empty() ? absl::OkStatus() : InvalidArgumentError(absl::StrJoin(errors, "\n"));
}

constexpr size_t kMostConfigBytes = size_t{4} << 20;

absl::StatusOr<std::string> ReadText(const std::string& name) {
  std::error_code ignored;
  if (std::filesystem::is_directory(name, ignored)) {
    return InvalidArgumentError(name, ": is a directory; give a file in it");
  }
  // A user may give a pipe as a config. In the place of a file that hadal wrote it would be waited for.
  const absl::Status opened = BaseName(name) == kResolvedConfigName ? OpenFile(name).status() : absl::OkStatus();
  if (!opened.ok()) return InvalidArgumentError(opened.message());
  std::ifstream stream(name, std::ios::binary);
  if (!stream) return InvalidArgumentError(name, ": cannot be read: ", std::strerror(errno));
  std::string text(kMostConfigBytes + 1, '\0');  // of pipes and devices, too
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > kMostConfigBytes) {
    return InvalidArgumentError(name, ": has more than ", kMostConfigBytes, " bytes; is it a config, in text form?");
  }
  if (absl::StartsWith(text, "\xFF\xFE") || absl::StartsWith(text, "\xFE\xFF")) {
    return InvalidArgumentError(name, ": is UTF-16; save it as UTF-8");
  }
  if (constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF"; absl::StartsWith(text, kByteOrderMark)) {
    text.erase(0, kByteOrderMark.size());
  }
  return text;
}

// The file for a config argument.
std::string ConfigFile(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(file, ignored)) return file;
  return (std::filesystem::path(file) / kResolvedConfigName).string();
}

}  // namespace

absl::Status MergeConfigText(const std::string& text, const std::string& name, config::RunConfig& config) {
  config::RunConfig layer;
  Locations locations;
  HADAL_RETURN_IF_ERROR(ParseLayer(text, name, layer, locations));
  ClearWrittenLists(layer, locations, config);
  config.MergeFrom(layer);
  return absl::OkStatus();
}

absl::Status ApplyOverride(absl::string_view override_text, config::RunConfig& config) {
  const auto fail = [&](absl::string_view what) { return InvalidArgumentError("--set ", override_text, ": ", what); };
  const size_t equals = override_text.find('=');
  if (equals == absl::string_view::npos) return fail("expected FIELD=VALUE, such as model.heads=8");
  const absl::string_view path = absl::StripAsciiWhitespace(override_text.substr(0, equals));
  const auto fields = FindField(path);
  if (!fields.ok()) return fail(fields.status().message());
  ConfigMessage* message = &config;
  for (const FieldDescriptor* field : *fields) {
    if (!IsMessage(*field)) break;
    message = message->GetReflection()->MutableMessage(message, field);
  }
  if (IsMessage(*fields->back())) {
    return fail(absl::StrCat(path, " is a group; set one of its fields, such as ", path, ".",
                             fields->back()->message_type()->field(0)->name()));
  }
  const absl::Status status = SetFromText(path, *fields->back(), override_text.substr(equals + 1), *message);
  return status.ok() ? status : fail(status.message());
}

absl::StatusOr<config::RunConfig> LoadConfig(const std::vector<std::string>& files,
                                             const std::vector<std::string>& overrides) {
  config::RunConfig config;
  for (const std::string& file : files) {
    const std::string name = ConfigFile(file);
    HADAL_ASSIGN_OR_RETURN(const std::string text, ReadText(name));
    HADAL_RETURN_IF_ERROR(MergeConfigText(text, name, config));
  }
  for (const std::string& override_text : overrides) HADAL_RETURN_IF_ERROR(ApplyOverride(override_text, config));
  return config;
}

std::string FieldPosition(const std::string& file, absl::string_view path) {
  const std::string name = ConfigFile(file);
  const auto fields = FindField(path);
  const absl::StatusOr<std::string> text = ReadText(name);
  config::RunConfig layer;
  Locations locations;
  if (!fields.ok() || !text.ok() || !ParseLayer(*text, name, layer, locations).ok()) return "";
  const Locations* group = &locations;
  for (const FieldDescriptor* field : *fields) {
    if (field != fields->back()) group = group->GetTreeForNested(field, -1);
    if (group == nullptr) return "";
  }
  const FieldDescriptor* field = fields->back();
  const TextFormat::ParseLocation at = group->GetLocation(field, field->is_repeated() ? 0 : -1);
  return at.line < 0 ? "" : PlaceName(name, {at.line, at.column});
}

absl::Status LoadMessage(const std::string& file, google::protobuf::Message& message) {
  HADAL_ASSIGN_OR_RETURN(const std::string text, ReadText(file));
  Locations locations;
  message.Clear();
  return ParseLayer(text, file, message, locations);
}

void AddConfigArguments(Command command, ConfigArguments& arguments) {
  command.AddOption("FILES", arguments.files, "Config files, base first; later ones override; or a run directory")
      .Required();
  command.AddOption("--set FIELD=VALUE", arguments.overrides, "Override one field: --set model.heads=8 (repeatable)")
      .OneValueEach();
}

}  // namespace hadal
