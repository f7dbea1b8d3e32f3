// The fields of a JSON object that nobody vouches for, read one by one into values of C++.
//
//   absl::Status status;
//   JsonFields fields(json, "", status);
//   fields.Read("step", progress.step);
//   fields.Read("size", size, 4, 100);
//   HADAL_RETURN_IF_ERROR(status);
// The first field that is missing, of another type or out of range ends up in `status` (DataLoss: "the field files[2].bytes is -1, a whole
// number from 0 to 9223372036854775807 is wanted"); what is read later keeps its value. So a reader is a list of names, and looks at
// `status` once.
// Thread safety: one thread.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <type_traits>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/choice_words.h"

namespace hadal {

// The number where `value` is a whole one; any that the parser keeps as such fits.
std::optional<absl::int128> JsonInteger(const nlohmann::json& value);
// The same where T can hold it.
template <std::integral T>
std::optional<T> JsonInteger(const nlohmann::json& value) {
  const std::optional<absl::int128> number = JsonInteger(value);
  if (!number || *number < std::numeric_limits<T>::min() || *number > std::numeric_limits<T>::max())
    return std::nullopt;
  return static_cast<T>(*number);
}

class JsonFields {
 public:
  // `place`: what the object is called in errors, "files[2]" say; empty at the top. Both outlive the reader.
  // Fails where `object` is none.
  JsonFields(const nlohmann::json& object, std::string place, absl::Status& status);

  void Read(const std::string& name, bool& value);
  void Read(const std::string& name, double& value);            // any number
  void ReadOrInfinity(const std::string& name, double& value);  // null: infinity, which JSON cannot write
  void Read(const std::string& name, std::string& value);
  template <std::integral T>
  void Read(const std::string& name, T& value, std::type_identity_t<T> least = std::numeric_limits<T>::min(),
            std::type_identity_t<T> most = std::numeric_limits<T>::max()) {
    if (const std::optional<absl::int128> number = Integer(name, least, most)) value = static_cast<T>(*number);
  }
  template <typename Enum, size_t kSize>
  void Read(const std::string& name, Enum& value, const Word<Enum> (&words)[kSize]) {
    std::string word;
    Read(name, word);
    const Enum* const meaning = FindWord(words, word);
    if (meaning != nullptr) value = *meaning;
    if (meaning == nullptr) Fail(name, absl::StrCat("has an unknown value, \"", word, "\""));
  }
  // A name without a path in it: one that leads elsewhere is refused.
  void ReadFileName(const std::string& name, std::string& value);
  // The list; an empty one after a failure.
  const nlohmann::json& List(const std::string& name);
  // A reader of an object in this one.
  JsonFields Object(const std::string& name);

  bool Has(const std::string& name) const;
  // Fails where the object holds more fields than were asked for.
  void NoOthers();
  // Puts "the field NAME WHAT" into the status unless that holds an error already.
  void Fail(const std::string& name, const std::string& what);

 private:
  // Null, after a failure, where there is no such field, and where an earlier one failed.
  const nlohmann::json* Find(const std::string& name);
  std::optional<absl::int128> Integer(const std::string& name, absl::int128 least, absl::int128 most);

  const nlohmann::json& object_;
  std::string place_;
  absl::Status& status_;
  size_t asked_ = 0;
};

}  // namespace hadal
