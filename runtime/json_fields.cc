#include "runtime/json_fields.h"

#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

// The first of two passes: receives the parser's events, builds nothing, and stops at the first fault. (The library's
// filter of the second pass could do this, but takes time quadratic in the number of objects in one object.)
class Checker final : public nlohmann::json_sax<Json> {
 public:
  explicit Checker(int max_depth) : max_depth_(max_depth) {}

  const std::string& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Open(); }
  bool start_array(std::size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    error_ = absl::StrCat("the key \"", name, "\" appears twice in one object");
    return false;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& exception) override {
    error_ = exception.what();
    return false;
  }

 private:
  bool Open() {
    keys_.emplace_back();
    if (static_cast<int>(keys_.size()) <= max_depth_) return true;
    error_ = absl::StrCat("nested deeper than ", max_depth_, " levels");
    return false;
  }
  bool Close() {
    keys_.pop_back();
    return true;
  }

  int max_depth_;
  std::vector<std::set<std::string>> keys_;  // of the open objects and arrays; empty for arrays
  std::string error_;
};

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

absl::StatusOr<Json> ParseStrictJson(std::string_view text, const StrictJsonLimits& limits, const std::string& what) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return DataLossError(what, ": ", text.size(), " bytes of JSON, more than the limit of ", limits.max_bytes);
  }
  try {
    Checker checker(limits.max_depth);
    if (!Json::sax_parse(text, &checker)) return DataLossError(what, ": not valid: ", checker.error());
    return Json::parse(text);
  } catch (const std::exception& error) {
    return DataLossError(what, ": not valid: ", error.what());
  }
}

std::optional<absl::int128> JsonInteger(const Json& value) {
  if (value.is_number_unsigned()) return absl::int128(value.get<uint64_t>());
  if (value.is_number_integer()) return absl::int128(value.get<int64_t>());
  return std::nullopt;
}

JsonFields::JsonFields(const Json& object, std::string path, absl::Status& status)
    : object_(object), path_(std::move(path)), status_(status) {
  if (object.is_object() || !status_.ok()) return;
  status_ = DataLossError(path_.empty() ? "it" : path_, " is ", Shown(object), ", not an object");
}

template <typename T>
void JsonFields::ReadAs(const std::string& name, bool (Json::*is_kind)() const, const char* kind, T& value) {
  const Json* const field = Find(name);
  if (field == nullptr) return;
  if (!(field->*is_kind)()) return Fail(name, absl::StrCat("is ", Shown(*field), ", expected ", kind));
  value = field->get<T>();
}

void JsonFields::Read(const std::string& name, bool& value) { ReadAs(name, &Json::is_boolean, "true or false", value); }
void JsonFields::Read(const std::string& name, double& value) { ReadAs(name, &Json::is_number, "a number", value); }
void JsonFields::Read(const std::string& name, std::string& value) { ReadAs(name, &Json::is_string, "text", value); }

void JsonFields::ReadOrInfinity(const std::string& name, double& value) {
  const auto field = object_.find(name);
  if (field == object_.end() || !field->is_null()) return Read(name, value);
  ++asked_;
  value = std::numeric_limits<double>::infinity();
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
  status_ = DataLossError(path_.empty() ? "it" : path_, " has fields that this version cannot read");
}

void JsonFields::Fail(const std::string& name, const std::string& what) {
  if (!status_.ok()) return;
  status_ = DataLossError("the field ", path_, path_.empty() ? "" : ".", name, " ", what);
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
