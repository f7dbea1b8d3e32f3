// A command-line option whose values have names: its help lists the names alone, and an unknown one is refused with the
// nearest.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/config/nearest_name.h"

namespace hadal {

// Turns a name of `values` into its number, which CLI11 reads into the option's enumeration.
template <typename Enum>
requires std::is_enum_v<Enum> CLI::Option* NameValues(CLI::Option* option,
                                                      const std::vector<std::pair<std::string, Enum>>& values) {
  std::vector<std::string> names;
  names.reserve(values.size());
  for (const auto& [name, value] : values) names.push_back(name);
  const auto replace = [values, names](std::string& word) -> std::string {
    for (const auto& [name, value] : values) {
      if (name != word) continue;
      word = absl::StrCat(static_cast<std::underlying_type_t<Enum>>(value));
      return "";
    }
    const std::string nearest = NearestName(word, names);
    return absl::StrCat("\"", word, "\" is none of ", absl::StrJoin(names, ", "),
                        nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?"));
  };
  return option->transform(CLI::Validator(replace, "", "names"))->type_name(absl::StrJoin(names, "|"));
}

}  // namespace hadal
