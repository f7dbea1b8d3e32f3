#include "tools/corpus/corpora_list.h"

#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "configs/corpora.pb.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"

namespace hadal {
namespace {

using Files = google::protobuf::RepeatedPtrField<std::string>;

// Adds a pair, and its reverse if `both`.
void Add(TextPair pair, bool both, std::vector<TextPair>& split) {
  split.push_back(pair);
  if (!both) return;
  pair.reversed = !pair.reversed;
  std::swap(pair.source, pair.target);
  std::swap(pair.direction.source, pair.direction.target);
  split.push_back(std::move(pair));
}

absl::Status AddSplit(const config::Text& text, const TextPair& named, const char* split, const Files& files,
                      const std::string& folder, std::vector<TextPair>& pairs) {
  if (files.empty()) return absl::OkStatus();
  if (files.size() > 2) {
    return InvalidArgumentError(CorpusName(named), ": ", split, " has ", files.size(),
                                " files; give SOURCE and TARGET, or one file of both: two columns, TMX or JSON Lines");
  }
  TextPair pair = named;
  const auto path = [&](const std::string& file) {
    return absl::StartsWith(file, "/") ? file : JoinPath(folder, file);
  };
  pair.source = path(files.Get(0));
  pair.target = path(files.Get(files.size() - 1));
  pair.one_file = files.size() == 1;
  Add(std::move(pair), text.both(), pairs);
  return absl::OkStatus();
}

absl::Status AddText(const config::Text& text, const std::string& folder, TextSplits& splits) {
  TextPair named;
  HADAL_ASSIGN_OR_RETURN(named.direction, ParseDirection(text.direction()));
  named.domain = text.domain();
  if (text.train().empty() && text.valid().empty() && text.test().empty()) {
    return InvalidArgumentError(CorpusName(named), " has no files; give train, valid or test, or leave it out");
  }
  HADAL_RETURN_IF_ERROR(AddSplit(text, named, "train", text.train(), folder, splits.train));
  HADAL_RETURN_IF_ERROR(AddSplit(text, named, "valid", text.valid(), folder, splits.valid));
  return AddSplit(text, named, "test", text.test(), folder, splits.test);
}

}  // namespace

absl::Status CheckCorpusNames(const std::vector<TextPair>& pairs) {
  std::set<std::string> names;
  for (const TextPair& pair : pairs) {
    if (names.insert(CorpusName(pair)).second) continue;
    return InvalidArgumentError("the direction ", CorpusName(pair),
                                " is given twice; tell its texts apart by domain: \"…\"");
  }
  return absl::OkStatus();
}

absl::StatusOr<TextSplits> ReadCorporaList(const std::string& path) {
  config::Corpora list;
  HADAL_RETURN_IF_ERROR(LoadMessage(path, list));
  TextSplits splits;
  const std::string folder = std::filesystem::path(path).parent_path().string();
  absl::Status status;
  for (const config::Text& text : list.text()) status.Update(AddText(text, folder, splits));
  for (const auto* pairs : {&splits.train, &splits.valid, &splits.test}) status.Update(CheckCorpusNames(*pairs));
  if (!status.ok()) return InvalidArgumentError(path, ": ", status.message());
  return splits;
}

absl::StatusOr<TextSplits> FindOpusTexts(const std::string& folder) {
  std::error_code error;
  std::map<std::string, std::filesystem::path> found;  // xx-yy → its folder, sorted
  for (std::filesystem::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::filesystem::path place = entry->path().parent_path();
    const std::string file = entry->path().filename().string(), parent = place.filename().string();
    if (!absl::StartsWith(file, "opus.")) continue;
    const bool is_named = absl::StartsWith(file, absl::StrCat("opus.", parent, "-"));  // opus.de-en-train.de in de-en
    const absl::Status direction = ParseDirection(parent).status();
    if (!is_named && !direction.ok()) continue;
    if (!direction.ok()) return InvalidArgumentError(entry->path().string(), ": ", direction.message());
    if (!is_named) {
      return InvalidArgumentError(entry->path().string(), " is not named after its folder, as opus.", parent, "-train.",
                                  parent.substr(0, parent.find('-')), " is; rename the folder or its files");
    }
    const auto [first, is_new] = found.emplace(parent, place);
    if (!is_new && first->second != place) {
      return InvalidArgumentError(first->second.string(), " and ", place.string(),
                                  " are of one direction; give a folder with one of them");
    }
  }
  if (error) return InvalidArgumentError(folder, ": ", error.message());
  TextSplits splits;
  for (const auto& [name, place] : found) {
    TextPair pair;
    HADAL_ASSIGN_OR_RETURN(pair.direction, ParseDirection(name));
    bool used = false;
    for (const auto& [suffix, split] :
         {std::pair("train", &splits.train), std::pair("dev", &splits.valid), std::pair("test", &splits.test)}) {
      const auto file = [&place = place, &name = name, &suffix = suffix](const std::string& language) {
        const std::string plain = JoinPath(place.string(), absl::StrCat("opus.", name, "-", suffix, ".", language));
        return !PathExists(plain) && PathExists(plain + ".gz") ? plain + ".gz" : plain;
      };
      pair.source = file(pair.direction.source);
      pair.target = file(pair.direction.target);
      const bool has_source = PathExists(pair.source), has_target = PathExists(pair.target);
      if (!has_source && !has_target) continue;
      if (has_source != has_target) {
        return NotFoundError(has_source ? pair.target : pair.source, " is missing beside ",
                             has_source ? pair.source : pair.target);
      }
      Add(pair, /*both=*/true, *split);
      used = true;
    }
    if (!used) {
      return InvalidArgumentError(place.string(), " has files opus.", name,
                                  "-*, but none for train, dev or test, as opus.", name, "-train.",
                                  pair.direction.source, " (or .gz)");
    }
  }
  if (splits.train.empty() && splits.test.empty()) {
    return InvalidArgumentError(folder,
                                " has no text as OPUS-100 has it, de-en/opus.de-en-train.de; give its folder, or "
                                "a list of texts with --list");
  }
  for (const auto* pairs : {&splits.train, &splits.valid, &splits.test})
    HADAL_RETURN_IF_ERROR(CheckCorpusNames(*pairs));
  return splits;
}

}  // namespace hadal
