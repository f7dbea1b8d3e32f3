#include "tools/corpus/prepare_corpus.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "runtime/data/corpus_manifest.h"
#include "runtime/status_macros.h"
#include "tools/output/staged_output.h"

namespace hadal {
namespace {

constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;

constexpr std::array<const char*, 3> kSplits = {"train", "valid", "test"};

bool IsManifest(const std::string& name) {
  return std::ranges::any_of(kSplits, [&](const char* split) { return name == absl::StrCat(split, ".json"); });
}

bool IsVocabulary(const std::string& name) {
  if (name == "tokenizer.json") return true;
  const std::array<const char*, 3> stems = {"vocabulary", "source", "target"};
  return std::ranges::any_of(stems, [&](const char* stem) {
    return name == absl::StrCat(stem, ".model") || name == absl::StrCat(stem, ".txt");
  });
}

// The manifests of corpora in the folder.
std::vector<std::string> Manifests(const std::string& folder) {
  std::vector<std::string> paths;
  for (const char* split : kSplits) {
    const std::string path = JoinPath(folder, absl::StrCat(split, ".json"));
    if (PathExists(path)) paths.push_back(path);
  }
  return paths;
}

// Features, for example, have manifests of the same names. A damaged manifest may be replaced.
absl::Status CheckIsCorpus(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxManifestBytes);
  const auto json = nlohmann::json::parse(text.ok() ? *text : "", nullptr, /*allow_exceptions=*/false);
  const std::string format = json.is_object() && json.contains("format") && json["format"].is_string()
                                 ? json["format"].get<std::string>()
                                 : std::string(CorpusManifest::kFormat);
  if (format == CorpusManifest::kFormat) return absl::OkStatus();
  return AlreadyExistsError(path, " is the manifest of \"", format,
                            "\", which a corpus would replace; choose another --out");
}

// "train.00012.shard", or an unfinished one: "train.00012.shard.partial".
bool IsShard(absl::string_view name) {
  absl::ConsumeSuffix(&name, ".partial");
  if (!absl::ConsumeSuffix(&name, ".shard")) return false;
  return std::ranges::any_of(kSplits, [name](const char* split) {
    absl::string_view number = name;
    return absl::ConsumePrefix(&number, absl::StrCat(split, ".")) && !number.empty() &&
           std::ranges::all_of(number, absl::ascii_isdigit);
  });
}

}  // namespace

absl::Status PrepareOutput::CheckFree(const std::string& folder, bool overwrite, const CorpusVocabularies* given) {
  HADAL_RETURN_IF_ERROR(CheckPlace(folder));
  if (!PathExists(folder)) return absl::OkStatus();
  const std::vector<std::string> manifests = Manifests(folder);
  for (const std::string& path : manifests) HADAL_RETURN_IF_ERROR(CheckIsCorpus(path));
  const bool may_replace = overwrite || (manifests.empty() && PathExists(StagingOf(folder)));
  HADAL_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(folder));
  std::stable_partition(names.begin(), names.end(), IsManifest);
  for (const std::string& name : names) {
    if (!IsManifest(name) && !IsVocabulary(name) && !IsShard(name) && name != kCleaningReport) continue;
    const std::string path = JoinPath(folder, name);
    const absl::StatusOr<FileDescriptor> opened = OpenFile(path);
    const absl::StatusOr<std::string> text =
        opened.ok() && IsVocabulary(name) ? ReadWhole(*opened, path, kMaxManifestBytes) : std::string();
    const bool is_given =
        given != nullptr && text.ok() && (*text == given->source.contents() || *text == given->target.contents());
    if (opened.ok() && (may_replace || is_given)) continue;
    return AlreadyExistsError(path, " already exists; choose another --out, or replace it with --overwrite");
  }
  return absl::OkStatus();
}

absl::Status PrepareOutput::CheckInputs(const std::string& folder, std::string_view extension,
                                        const std::vector<std::string>& inputs) {
  std::vector<std::string> names = {kCleaningReport};
  for (const char* split : kSplits) names.push_back(absl::StrCat(split, ".json"));
  for (const char* vocabulary : {"vocabulary", "source", "target"}) {
    names.push_back(absl::StrCat(vocabulary, std::string(extension)));
  }
  names.emplace_back("tokenizer.json");
  for (const std::string& input : inputs) {
    if (IsShard(BaseName(input))) names.push_back(BaseName(input));
  }
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    if (CheckIsNoneOf(path, inputs).ok()) continue;
    return InvalidArgumentError("preparing into ", folder, " may replace ", path,
                                ", which is an input; choose another --out");
  }
  return absl::OkStatus();
}

absl::StatusOr<PrepareOutput> PrepareOutput::Take(const std::string& folder, bool overwrite,
                                                  const CorpusVocabularies* given) {
  HADAL_ASSIGN_OR_RETURN(OutputFolder lock, OutputFolder::Take(folder));
  HADAL_RETURN_IF_ERROR(CheckFree(folder, overwrite, given));  // another process may have written since the first check
  const std::string staging = StagingOf(folder);
  PrepareOutput output(folder, std::move(lock), PathExists(staging));
  HADAL_RETURN_IF_ERROR(RemoveTree(staging));
  HADAL_RETURN_IF_ERROR(MakeDirectories(staging));
  if (!output.was_left_unfinished_) output.removal_.emplace(staging);
  return output;
}

PrepareOutput::~PrepareOutput() {
  if (folder_.empty() || was_left_unfinished_) return;
  RemoveTree(staging()).IgnoreError();
}

absl::StatusOr<std::set<std::string>> PrepareOutput::Clear() const {
  std::set<std::string> shards;
  if (was_left_unfinished_) {
    HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder_));
    std::ranges::copy_if(names, std::inserter(shards, shards.end()), IsShard);
  }
  for (const std::string& path : Manifests(folder_)) {
    // An unreadable manifest names no shards; its shards are kept.
    const absl::StatusOr<std::string> json = ReadFile(path, kMaxManifestBytes);
    const absl::StatusOr<CorpusManifest> manifest = json.ok() ? ManifestFromJson(*json, path) : json.status();
    if (manifest.ok()) {
      for (const ShardReference& shard : manifest->shards) {
        if (IsShard(shard.file)) shards.insert(shard.file);  // else another program's manifest names it
      }
    }
    HADAL_RETURN_IF_ERROR(RemoveTree(path));
  }
  HADAL_RETURN_IF_ERROR(RemoveTree(JoinPath(folder_, kCleaningReport)));
  return shards;
}

absl::Status PrepareOutput::Commit(const std::vector<CorpusManifest>& manifests) {
  removal_.reset();
  absl::StatusOr<std::set<std::string>> cleared = Clear();
  was_left_unfinished_ = true;  // whatever ends it from here on
  HADAL_ASSIGN_OR_RETURN(std::set<std::string> surplus, std::move(cleared));
  HADAL_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(staging()));
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) { return !IsManifest(name); });
  for (const std::string& name : names) {
    HADAL_RETURN_IF_ERROR(RenamePath(JoinPath(staging(), name), JoinPath(folder_, name)));
  }
  HADAL_RETURN_IF_ERROR(SyncDirectory(folder_));
  for (const CorpusManifest& manifest : manifests) {
    for (const ShardReference& shard : manifest.shards) surplus.erase(shard.file);
  }
  for (const std::string& file : surplus) HADAL_RETURN_IF_ERROR(RemoveTree(JoinPath(folder_, file)));
  was_left_unfinished_ = false;
  return absl::OkStatus();
}

}  // namespace hadal
