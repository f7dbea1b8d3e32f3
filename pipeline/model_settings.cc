#include "pipeline/model_settings.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layers/model_fields.h"
#include "runtime/status_macros.h"
#include "runtime/strict_json.h"

namespace hadal {
namespace {

using Json = nlohmann::ordered_json;

// A field's value as settings show it.
Json ToJson(double value) { return value; }
Json ToJson(int32_t value) { return value; }
Json ToJson(bool value) { return value; }
template <typename Enum, size_t kWords>
Json ToJson(Enum value, const Word<Enum> (&words)[kWords]) {
  return ToWord(words, value);
}
Json ToJson(const StackMethod& stack) {
  Json json;
  ForEachStackField([&](const char* name, auto member, FieldAge, const auto&... words) {
    json[name] = ToJson(stack.*member, words...);
  });
  return json;
}

// Takes fields out of an object and remembers the first thing that is wrong.
class FieldReader {
 public:
  FieldReader(const nlohmann::json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {
    if (!object.is_object()) Fail("", "is no object");
  }

  void Read(const char* name, double& value) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_number()) return Fail(name, "is no number");
    value = field->get<double>();
  }
  void Read(const char* name, int32_t& value) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_number_integer()) return Fail(name, "is no whole number");
    const auto number = field->get<int64_t>();
    if (number < 0 || number > std::numeric_limits<int32_t>::max()) return Fail(name, "is out of range");
    value = static_cast<int32_t>(number);
  }
  void Read(const char* name, bool& value) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_boolean()) return Fail(name, "is neither true nor false");
    value = field->get<bool>();
  }
  template <typename Enum, size_t kWords>
  void Read(const char* name, Enum& value, const Word<Enum> (&words)[kWords]) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    if (!field->is_string()) return Fail(name, "is no word");
    const Enum* const meaning = FindWord(words, field->get_ref<const std::string&>());
    if (meaning == nullptr) return Fail(name, "has an unknown value");
    value = *meaning;
  }
  // A visitor that reads each field into its member of `options`; where settings lack one that came later, it keeps its value.
  template <typename Options>
  auto Into(Options& options) {
    return [this, &options](const char* name, auto member, FieldAge age, const auto&... words) {
      if (age == FieldAge::kFirst || object_.contains(name)) Read(name, options.*member, words...);
    };
  }
  void Read(const char* name, StackMethod& stack) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    FieldReader reader(*field, absl::StrCat(name, "."));
    ForEachStackField(reader.Into(stack));
    status_.Update(reader.Done());
  }

  // OK when everything was right and no field is left over.
  absl::Status Done() {
    if (status_.ok() && object_.size() != fields_) Fail("", "has fields that this version does not know");
    return status_;
  }

 private:
  const nlohmann::json* Find(const char* name) {
    ++fields_;
    if (!status_.ok()) return nullptr;
    const auto field = object_.find(name);
    if (field != object_.end()) return &*field;
    Fail(name, "is missing");
    return nullptr;
  }
  void Fail(const std::string& name, const std::string& what) {
    if (status_.ok()) status_ = absl::DataLossError(absl::StrCat("model settings: ", prefix_, name, " ", what));
  }

  const nlohmann::json& object_;
  std::string prefix_;
  size_t fields_ = 0;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<ModelOptions> ParseModelSettings(const std::string& text) {
  constexpr int64_t kMostBytes = 1 << 16;
  HADAL_ASSIGN_OR_RETURN(const nlohmann::json json,
                         ParseStrictJson(text, {.max_bytes = kMostBytes, .max_depth = 3}, "model settings"));
  ModelOptions options;
  FieldReader reader(json, "");
  ForEachModelField(reader.Into(options));
  HADAL_RETURN_IF_ERROR(reader.Done());
  if (const absl::Status valid = ValidateModelOptions(options); !valid.ok()) {
    return absl::DataLossError(absl::StrCat("model settings: ", valid.message()));
  }
  return options;
}

std::string ModelSettingsJson(const ModelOptions& options) {
  Json json;
  ForEachModelField([&](const char* name, auto member, FieldAge, const auto&... words) {
    json[name] = ToJson(options.*member, words...);
  });
  return json.dump();
}

}  // namespace hadal
