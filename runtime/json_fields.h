// Reads the fields of an untrusted JSON object into C++ values.
//
//   absl::Status status;
//   JsonFields fields(json, "", status);
//   fields.Read("step", progress.step);
//   fields.Read("size", size, 4, 100);
//   HADAL_RETURN_IF_ERROR(status);
// `status` is the error of the first field that is missing, of another type or out of range (DataLoss: "the field
// files[2].bytes is -1, expected a whole number from 0 to 9223372036854775807"). Later reads do nothing, so one check
// of `status` at the end suffices.
// Thread safety: one thread.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/numeric/int128.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/choice_words.h"

namespace hadal {

struct StrictJsonLimits {
  int64_t max_bytes = 0;
  int max_depth = 8;  // nested objects and lists, the outermost included
};

// Parses JSON from untrusted files: nlohmann-json with limits, and with absl::Status instead of exceptions.
//
// Besides malformed JSON it refuses: text longer than max_bytes; nesting deeper than max_depth (detected while parsing,
// before anything is built); an object with a duplicate key (parsers disagree on which one counts); invalid UTF-8.
// Thread safety: pure function. Memory: at most about 16 bytes per byte of text. Time: linear.
// Errors: DataLoss; the message starts with `what` (for example a path). REQUIRES: limits.max_bytes is set.
absl::StatusOr<nlohmann::json> ParseStrictJson(std::string_view text, const StrictJsonLimits& limits,
                                               const std::string& what);

// Returns the number if `value` is an integer, else nullopt. The result holds every integer that the parser accepts.
std::optional<absl::int128> JsonInteger(const nlohmann::json& value);
// As the other JsonInteger; nullopt also if T cannot hold the number.
template <std::integral T>
std::optional<T> JsonInteger(const nlohmann::json& value) {
  const std::optional<absl::int128> number = JsonInteger(value);
  if (!number || *number < std::numeric_limits<T>::min() || *number > std::numeric_limits<T>::max())
    return std::nullopt;
  return static_cast<T>(*number);
}

class JsonFields {
 public:
  // "Fails" below means: sets `status`, unless it is already an error. The `value` argument then has no meaning.
  // Fails if `object` is not a JSON object. `path`: the object's name in errors, for example "files[2]"; empty for the
  // outermost object. `object` and `status` must outlive the reader.
  JsonFields(const nlohmann::json& object, std::string path, absl::Status& status);

  void Read(const std::string& name, bool& value);
  void Read(const std::string& name, double& value);            // any number
  void ReadOrInfinity(const std::string& name, double& value);  // null: infinity, which JSON cannot represent
  void Read(const std::string& name, std::string& value);
  // Fails if the number is outside [least, most].
  template <std::integral T>
  void Read(const std::string& name, T& value, std::type_identity_t<T> least = std::numeric_limits<T>::min(),
            std::type_identity_t<T> most = std::numeric_limits<T>::max()) {
    if (const std::optional<absl::int128> number = Integer(name, least, most)) value = static_cast<T>(*number);
  }
  // Sets `value` to the enumerator that `words` has for the field's text. Fails if `words` lacks the text.
  template <typename Enum, size_t kSize>
  void Read(const std::string& name, Enum& value, const Word<Enum> (&words)[kSize]) {
    std::string word;
    Read(name, word);
    const Enum* const meaning = FindWord(words, word);
    if (meaning != nullptr) value = *meaning;
    if (meaning == nullptr) Fail(name, absl::StrCat("has an unknown value, \"", word, "\""));
  }
  // Fails unless the value is a plain file name, without a path.
  void ReadFileName(const std::string& name, std::string& value);
  // Returns the list field `name`; an empty list if that fails.
  const nlohmann::json& List(const std::string& name);
  // Returns a reader of the nested object `name`, with the same status.
  JsonFields Object(const std::string& name);

  // Whether the object has the field; does not count as reading it.
  bool Has(const std::string& name) const;
  // Fails if the object has fields that were not read. REQUIRES: no field was read twice.
  void NoOthers();
  // Fails with the message "the field NAME WHAT".
  void Fail(const std::string& name, const std::string& what);

 private:
  // Returns the field, or null if it is missing or if an earlier field failed.
  const nlohmann::json* Find(const std::string& name);
  template <typename T>
  void ReadAs(const std::string& name, bool (nlohmann::json::*is_kind)() const, const char* kind, T& value);
  std::optional<absl::int128> Integer(const std::string& name, absl::int128 least, absl::int128 most);

  const nlohmann::json& object_;
  std::string path_;
  absl::Status& status_;
  size_t asked_ = 0;
};

}  // namespace hadal
