#include "tools/config/config_origin.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tools/config/config_loading.h"
#include "tools/config/config_schema.h"
#include "tools/config/config_value.h"

namespace hadal {
namespace {

bool IsPathCharacter(char c) { return absl::ascii_isalnum(c) || c == '_' || c == '.'; }

// The fields that `text` names, without groups, each once.
std::vector<std::string> FieldsIn(absl::string_view text) {
  std::vector<std::string> paths;
  while (!text.empty()) {
    const auto end = std::find_if_not(text.begin(), text.end(), IsPathCharacter);
    absl::string_view word = text.substr(0, end - text.begin());
    text.remove_prefix(std::max<size_t>(word.size(), 1));
    while (absl::ConsumeSuffix(&word, ".")) continue;  // end of a sentence
    const auto fields = FindField(word);
    if (!fields.ok() || IsMessage(*fields->back())) continue;
    if (std::find(paths.begin(), paths.end(), word) == paths.end()) paths.emplace_back(word);
  }
  return paths;
}

// "model.heads = 7"; "" if the config does not set the field.
std::string SettingText(const config::RunConfig& config, const std::string& path) {
  const std::vector<const FieldDescriptor*> fields = *FindField(path);
  const ConfigMessage* message = &config;
  for (const FieldDescriptor* field : fields) {
    if (IsMessage(*field)) message = &message->GetReflection()->GetMessage(*message, field);
  }
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  const FieldDescriptor& field = *fields.back();
  const bool is_set =
      field.is_repeated() ? reflection.FieldSize(*message, &field) > 0 : reflection.HasField(*message, &field);
  return is_set ? absl::StrCat(path, " = ", ValueText(*message, field)) : "";
}

std::string Origin(const std::string& path, const std::string& setting, const std::vector<std::string>& files,
                   const std::vector<std::string>& overrides) {
  if (setting.empty())
    return absl::StrCat("not set: ", path, " (default: ", DefaultText(*FindField(path)->back()), ")");
  for (auto text = overrides.rbegin(); text != overrides.rend(); ++text) {
    const absl::string_view name = absl::string_view(*text).substr(0, text->find('='));
    if (absl::StripAsciiWhitespace(name) == path) return absl::StrCat("--set ", *text);
  }
  for (auto file = files.rbegin(); file != files.rend(); ++file) {
    if (const std::string at = FieldPosition(*file, path); !at.empty()) return absl::StrCat(at, ": ", setting);
  }
  return setting;  // a file has changed since it was loaded
}

}  // namespace

absl::Status WithOrigins(const absl::Status& error, const std::vector<std::string>& files,
                         const std::vector<std::string>& overrides) {
  if (error.ok()) return error;
  const absl::StatusOr<config::RunConfig> config = LoadConfig(files, overrides);
  if (!config.ok()) return error;
  std::string text(error.message());
  for (const std::string& path : FieldsIn(error.message())) {
    absl::StrAppend(&text, "\n  ", Origin(path, SettingText(*config, path), files, overrides));
  }
  return absl::Status(error.code(), text);
}

}  // namespace hadal
