#include "tools/corpus/prepare_corpus.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "runtime/data/corpus_manifest.h"
#include "runtime/locked_file.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;

constexpr std::array<const char*, 3> kSplits = {"train", "valid", "test"};

std::string LockPath(const std::string& folder) { return JoinPath(folder, ".prepare.lock"); }

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
  return absl::AlreadyExistsError(
      absl::StrCat(path, " is the manifest of \"", format, "\", which a corpus would replace; choose another --out"));
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

absl::Status PrepareOutput::CheckFree(const std::string& folder, bool overwrite) {
  const std::vector<std::string> manifests = Manifests(folder);
  for (const std::string& path : manifests) HADAL_RETURN_IF_ERROR(CheckIsCorpus(path));
  if (overwrite || manifests.empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(manifests[0], " already exists; choose another --out, or replace it with --overwrite"));
}

absl::Status PrepareOutput::CheckInputs(const std::string& folder, std::string_view extension,
                                        const std::vector<std::string>& inputs) {
  std::vector<std::string> names = {kCleaningReport};
  for (const char* split : kSplits) names.push_back(absl::StrCat(split, ".json"));
  for (const char* vocabulary : {"vocabulary", "source", "target"}) {
    names.push_back(absl::StrCat(vocabulary, std::string(extension)));
  }
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    if (CheckIsNoneOf(path, inputs).ok()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("preparing into ", folder, " may replace ", path, ", which is an input; choose another --out"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PrepareOutput> PrepareOutput::Take(const std::string& folder, bool overwrite) {
  HADAL_RETURN_IF_ERROR(MakeDirectories(folder));
  const bool was_left_unfinished = PathExists(LockPath(folder));
  absl::StatusOr<FileDescriptor> lock = OpenLocked(LockPath(folder));
  if (absl::IsAborted(lock.status())) {
    return absl::AbortedError(absl::StrCat("another hadal prepare is writing into ", folder,
                                           "; wait until it ends, or choose another --out"));
  }
  HADAL_RETURN_IF_ERROR(lock.status());
  PrepareOutput output(folder, *std::move(lock), was_left_unfinished);
  HADAL_RETURN_IF_ERROR(CheckFree(folder, overwrite));  // another process may have written since the first check
  return output;
}

PrepareOutput::~PrepareOutput() {
  if (lock_.valid() && !is_unfinished_ && !was_left_unfinished_) RemoveTree(LockPath(folder_)).IgnoreError();
}

absl::Status PrepareOutput::Clear() {
  is_unfinished_ = true;
  if (was_left_unfinished_) {
    HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder_));
    std::ranges::copy_if(names, std::inserter(old_shards_, old_shards_.end()), IsShard);
  }
  for (const std::string& path : Manifests(folder_)) {
    // An unreadable manifest names no shards; its shards are kept.
    const absl::StatusOr<std::string> json = ReadFile(path, kMaxManifestBytes);
    const absl::StatusOr<CorpusManifest> manifest = json.ok() ? ManifestFromJson(*json, path) : json.status();
    if (manifest.ok()) {
      for (const ShardReference& shard : manifest->shards) {
        if (IsShard(shard.file)) old_shards_.insert(shard.file);  // else another program's manifest names it
      }
    }
    HADAL_RETURN_IF_ERROR(RemoveTree(path));
  }
  return RemoveTree(JoinPath(folder_, kCleaningReport));
}

absl::Status PrepareOutput::RemoveSurplus(const std::vector<CorpusManifest>& manifests) {
  std::set<std::string> surplus = old_shards_;
  for (const CorpusManifest& manifest : manifests) {
    for (const ShardReference& shard : manifest.shards) surplus.erase(shard.file);
  }
  for (const std::string& file : surplus) HADAL_RETURN_IF_ERROR(RemoveTree(JoinPath(folder_, file)));
  is_unfinished_ = was_left_unfinished_ = false;
  return absl::OkStatus();
}

}  // namespace hadal
