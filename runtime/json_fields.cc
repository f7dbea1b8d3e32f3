#include "runtime/json_fields.h"

#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "runtime/files.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

std::string Text(absl::int128 number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

// Formats a value for an error message: short, and valid UTF-8 whatever the value is.
std::string Shown(const Json& value) {
  constexpr size_t kLongest = 40;
  if (value.is_structured()) return absl::StrCat("an ", value.type_name());
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return text.size() <= kLongest ? text : absl::StrCat(text.substr(0, kLongest), "...");
}

}  // namespace

std::optional<absl::int128> JsonInteger(const Json& value) {
  if (value.is_number_unsigned()) return absl::int128(value.get<uint64_t>());
  if (value.is_number_integer()) return absl::int128(value.get<int64_t>());
  return std::nullopt;
}

JsonFields::JsonFields(const Json& object, std::string path, absl::Status& status)
    : object_(object), path_(std::move(path)), status_(status) {
  if (object.is_object() || !status_.ok()) return;
  status_ = absl::DataLossError(absl::StrCat(path_.empty() ? "it" : path_, " is ", Shown(object), ", not an object"));
}

void JsonFields::Read(const std::string& name, bool& value) {
  const Json* const field = Find(name);
  if (field == nullptr) return;
  if (!field->is_boolean()) return Fail(name, absl::StrCat("is ", Shown(*field), ", expected true or false"));
  value = field->get<bool>();
}

void JsonFields::Read(const std::string& name, double& value) {
  const Json* const field = Find(name);
  if (field == nullptr) return;
  if (!field->is_number()) return Fail(name, absl::StrCat("is ", Shown(*field), ", expected a number"));
  value = field->get<double>();
}

void JsonFields::ReadOrInfinity(const std::string& name, double& value) {
  const auto field = object_.find(name);
  if (field == object_.end() || !field->is_null()) return Read(name, value);
  ++asked_;
  value = std::numeric_limits<double>::infinity();
}

void JsonFields::Read(const std::string& name, std::string& value) {
  const Json* const field = Find(name);
  if (field == nullptr) return;
  if (!field->is_string()) return Fail(name, absl::StrCat("is ", Shown(*field), ", expected text"));
  value = field->get<std::string>();
}

void JsonFields::ReadFileName(const std::string& name, std::string& value) {
  std::string file;
  Read(name, file);
  if (status_.ok() && !IsPlainFileName(file)) {
    return Fail(name, absl::StrCat("is ", Shown(file), ", expected a plain file name"));
  }
  value = std::move(file);
}

const Json& JsonFields::List(const std::string& name) {
  static const Json* const kNone = new Json(Json::array());
  const Json* const field = Find(name);
  if (field == nullptr) return *kNone;
  if (field->is_array()) return *field;
  Fail(name, absl::StrCat("is ", Shown(*field), ", expected a list"));
  return *kNone;
}

JsonFields JsonFields::Object(const std::string& name) {
  static const Json* const kEmpty = new Json(Json::object());
  const Json* const field = Find(name);
  return {field == nullptr ? *kEmpty : *field, path_.empty() ? name : absl::StrCat(path_, ".", name), status_};
}

bool JsonFields::Has(const std::string& name) const { return object_.contains(name); }

void JsonFields::NoOthers() {
  if (!status_.ok() || object_.size() == asked_) return;
  status_ =
      absl::DataLossError(absl::StrCat(path_.empty() ? "it" : path_, " has fields that this version does not know"));
}

void JsonFields::Fail(const std::string& name, const std::string& what) {
  if (!status_.ok()) return;
  status_ = absl::DataLossError(absl::StrCat("the field ", path_, path_.empty() ? "" : ".", name, " ", what));
}

const Json* JsonFields::Find(const std::string& name) {
  ++asked_;
  if (!status_.ok()) return nullptr;
  const auto field = object_.find(name);
  if (field != object_.end()) return &*field;
  Fail(name, "is missing");
  return nullptr;
}

std::optional<absl::int128> JsonFields::Integer(const std::string& name, absl::int128 least, absl::int128 most) {
  const Json* const field = Find(name);
  if (field == nullptr) return std::nullopt;
  const std::optional<absl::int128> number = JsonInteger(*field);
  if (number && *number >= least && *number <= most) return number;
  Fail(name, absl::StrCat("is ", Shown(*field), ", expected a whole number from ", Text(least), " to ", Text(most)));
  return std::nullopt;
}

}  // namespace hadal
