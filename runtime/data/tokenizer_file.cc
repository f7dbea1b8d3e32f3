#include "runtime/data/tokenizer_file.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "runtime/json_fields.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"

namespace hadal {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr int64_t kMostIds = int64_t{1} << 24;

// The ids of a tokenizer's model: an object of tokens and ids, or Unigram's list of [token, score].
absl::StatusOr<std::unordered_map<std::string, int64_t>> IdsOf(const Json& vocabulary, const std::string& name) {
  const auto refused = [&](absl::string_view what) {
    return InvalidArgumentError(name, ": its model's vocab has ", what, "; save the tokenizer again");
  };
  std::unordered_map<std::string, int64_t> ids;
  if (vocabulary.is_object()) {
    for (const auto& [token, id] : vocabulary.items()) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kMostIds) {
        return refused(absl::StrCat("no id for \"", Printable(token), "\""));
      }
      ids[token] = id.get<int64_t>();
    }
    return ids;
  }
  for (const Json& piece : vocabulary) {
    if (!piece.is_array() || piece.empty() || !piece[0].is_string()) return refused("an entry that is no piece");
    ids.try_emplace(piece[0].get<std::string>(), static_cast<int64_t>(ids.size()));
  }
  return ids;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> TokensOfTokenizer(const std::string& contents, const std::string& name) {
  const StrictJsonLimits limits{.max_bytes = kMostBytes, .max_depth = 16};
  const absl::StatusOr<Json> json = ParseStrictJson(contents, limits, name);
  if (!json.ok()) return InvalidArgumentError(json.status().message());
  const bool has_model = json->is_object() && json->contains("model") && (*json)["model"].is_object() &&
                         (*json)["model"].contains("vocab");
  if (!has_model) {
    return InvalidArgumentError(
        name, " is JSON, but no tokenizer.json; give that, or the SentencePiece model or dict.txt that belongs to it");
  }
  HADAL_ASSIGN_OR_RETURN(auto ids, IdsOf((*json)["model"]["vocab"], name));
  int64_t next = static_cast<int64_t>(ids.size());  // the first free number, as the package counts
  for (const Json& added : json->value("added_tokens", Json::array())) {
    if (!added.is_object() || !added.contains("content") || !added["content"].is_string() ||
        !added.value("id", Json()).is_number_integer()) {
      return InvalidArgumentError(name, ": an added token without content or id");
    }
    const std::string token = added["content"];
    const int64_t id = added["id"];
    const auto found = ids.find(token);
    const int64_t expected = found == ids.end() ? next++ : found->second;
    if (id != expected) {
      return InvalidArgumentError(name, ": the added token \"", Printable(token), "\" has the id ", id,
                                  ", and tokenizers gives it ", expected,
                                  "; save the tokenizer again with that package");
    }
    ids[token] = id;
  }
  int64_t size = 0;
  for (const auto& [token, id] : ids) size = std::max(size, id + 1);
  std::vector<std::string> tokens(static_cast<size_t>(size));
  for (const auto& [token, id] : ids) tokens[static_cast<size_t>(id)] = token;
  return tokens;
}

}  // namespace hadal
