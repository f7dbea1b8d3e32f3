#include "tools/config/config_origin.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"
#include "tools/config/config_schema.h"
#include "tools/config/config_value.h"

namespace hadal {
namespace {

using google::protobuf::io::Tokenizer;

// The parser has reported the error already.
class IgnoreErrors : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

// Follows the grammar of text format loosely:  field = NAME [":"] VALUE,  VALUE = scalar | "[" list "]" | "{" fields
// "}".
class Walk {
 public:
  void Take(const Tokenizer::Token& token) {
    if (Continues(token)) {
      value_text_ += token.text;
      value_end_.column = token.end_column;
    } else if (token.text == ":") {
      state_ = State::kValue;
    } else if (token.text == "{" || token.text == "<") {
      Open();
    } else if (token.text == "}" || token.text == ">") {
      Close();
    } else if (state_ == State::kValue || state_ == State::kList) {
      TakeValue(token);
    } else if (token.type == Tokenizer::TYPE_IDENTIFIER) {
      last_ = token.text;
      name_ = {token.line, token.column};
      value_text_.clear();
      state_ = State::kNamed;
    }
  }

  bool expects_value() const { return state_ == State::kValue || state_ == State::kList; }

  // Whether the token continues a scalar without a blank: "1f1b" is tokenised as "1f" and "1b", "-1" as "-" and "1".
  bool Continues(const Tokenizer::Token& token) const {
    return !value_text_.empty() && TextPosition{token.line, token.column} == value_end_ &&
           (token.type != Tokenizer::TYPE_SYMBOL || token.text == "." || token.text == "-");
  }

  FieldAtPosition At(TextPosition position) const {
    FieldAtPosition field{.path = parents_, .name = name_, .value = value_, .value_text = value_text_};
    if (!last_.empty()) field.path.push_back(last_);
    field.in_value = !value_text_.empty() && position >= value_ && position < value_end_;
    if (!field.in_value && expects_value()) {
      field.in_value = true;
      field.value = position;
      field.value_text.clear();
    }
    return field;
  }

 private:
  enum class State { kName, kNamed, kValue, kList };

  void TakeValue(const Tokenizer::Token& token) {
    if (token.text == "[") {
      state_ = State::kList;
    } else if (token.text == "]") {
      state_ = State::kName;
    } else if (token.text != ",") {
      value_ = {token.line, token.column};
      value_end_ = {token.line, token.end_column};
      value_text_ = token.text;
      if (state_ == State::kValue) state_ = State::kName;
    }
  }

  void Open() {
    if (last_.empty()) return;
    parents_.push_back(last_);
    names_.push_back(name_);
    Reset();
  }

  void Close() {
    if (!parents_.empty()) {
      parents_.pop_back();
      names_.pop_back();
    }
    Reset();
  }

  void Reset() {
    last_.clear();
    name_ = names_.empty() ? TextPosition{} : names_.back();
    value_text_.clear();
    state_ = State::kName;
  }

  State state_ = State::kName;
  std::vector<std::string> parents_;  // names of the open groups, and where each is named
  std::vector<TextPosition> names_;
  std::string last_;  // the last field named in the innermost group
  TextPosition name_;
  TextPosition value_, value_end_;
  std::string value_text_;
};

bool IsPathCharacter(char c) { return absl::ascii_isalnum(c) || c == '_' || c == '.'; }

// The fields that `text` names, without groups, each once. ValidateModelOptions names them as in "model: block.window".
std::vector<std::string> FieldsIn(absl::string_view text) {
  std::vector<std::string> paths;
  const bool of_model = absl::StartsWith(text, "model: ");
  while (!text.empty()) {
    const auto end = std::find_if_not(text.begin(), text.end(), IsPathCharacter);
    absl::string_view word = text.substr(0, end - text.begin());
    text.remove_prefix(std::max<size_t>(word.size(), 1));
    while (absl::ConsumeSuffix(&word, ".")) continue;  // end of a sentence
    std::string path(word);
    auto fields = FindField(path);
    if (!fields.ok() && of_model) fields = FindField(path = absl::StrCat("model.", word));
    if (!fields.ok() || IsMessage(*fields->back())) continue;
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(std::move(path));
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

// What later files do to a file's fields.
struct Fate {
  int fields = 0;
  bool all_set_again = true;
  std::string changed;  // "model.d_model = 128 becomes 512": the first one
};

// A member of a oneof is also replaced by another member.
bool IsSet(const ConfigMessage& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) return reflection.FieldSize(message, &field) > 0;
  const auto* alternatives = field.real_containing_oneof();
  return alternatives != nullptr ? reflection.HasOneof(message, alternatives) : reflection.HasField(message, &field);
}

void Follow(const ConfigMessage& layer, const ConfigMessage& later, const std::string& parent, Fate& fate) {
  std::vector<const FieldDescriptor*> fields;
  layer.GetReflection()->ListFields(layer, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string path = FieldPath(parent, field->name());
    if (IsMessage(*field)) {
      Follow(layer.GetReflection()->GetMessage(layer, field), later.GetReflection()->GetMessage(later, field), path,
             fate);
      continue;
    }
    ++fate.fields;
    if (!IsSet(later, *field)) {
      fate.all_set_again = false;
      continue;
    }
    const std::string before = ValueText(layer, *field), after = ValueText(later, *field);
    if (fate.changed.empty() && before != after) fate.changed = absl::StrCat(path, " = ", before, " becomes ", after);
  }
}

}  // namespace

FieldAtPosition FieldAt(absl::string_view text, TextPosition position) {
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  IgnoreErrors errors;
  Tokenizer tokenizer(&stream, &errors);
  tokenizer.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
  tokenizer.set_allow_f_after_float(true);
  Walk walk;
  while (tokenizer.Next()) {
    const Tokenizer::Token& token = tokenizer.current();
    const TextPosition start{token.line, token.column};
    const bool is_the_value = start == position && walk.expects_value() && token.text != "}";
    if (start >= position && !is_the_value && !walk.Continues(token)) break;
    walk.Take(token);
  }
  return walk.At(position);
}

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

absl::StatusOr<std::vector<std::string>> LayersWithoutEffect(const std::vector<std::string>& files) {
  std::vector<std::string> warnings;
  for (size_t i = 0; i + 1 < files.size(); ++i) {
    HADAL_ASSIGN_OR_RETURN(const config::RunConfig layer, LoadConfig({files[i]}, {}));
    HADAL_ASSIGN_OR_RETURN(const config::RunConfig later, LoadConfig({files.begin() + i + 1, files.end()}, {}));
    Fate fate;
    Follow(layer, later, "", fate);
    if (!fate.all_set_again || fate.changed.empty()) continue;
    warnings.push_back(absl::StrCat(files[i], " has no effect: later files set all of its ", fate.fields, " fields (",
                                    fate.changed, "). Later files override earlier ones; give the base first."));
  }
  return warnings;
}

}  // namespace hadal
