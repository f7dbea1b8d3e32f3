#include "launch/train/corpus_agreement.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/doctor/rank_comparison.h"

namespace hadal {
namespace {

std::string Checksum(uint32_t crc32c) { return absl::StrCat("checksum ", absl::Hex(crc32c, absl::kZeroPad8)); }

std::string Line(const VocabularyReference& vocabulary) {
  return absl::StrCat(vocabulary.file, " (", vocabulary.size, " ids, ", Checksum(vocabulary.crc32c), ")\n");
}

std::string Line(const ShardReference& shard) {
  return absl::StrCat(shard.file, " (", shard.bytes, " bytes, ", shard.samples, " samples, ", Checksum(shard.crc32c),
                      ")\n");
}

// What decides about training: not the statistics, nor what the text was called.
std::string ContentsOf(const CorpusManifest& manifest) {
  std::string contents = Line(manifest.source_vocabulary);
  absl::StrAppend(&contents, Line(manifest.target_vocabulary));
  for (const ShardReference& shard : manifest.shards) absl::StrAppend(&contents, Line(shard));
  return contents;
}

// Which files of this host they are: equal for two processes that see the same ones.
std::string PlaceOf(const std::string& prefix, const CorpusManifest& manifest) {
  std::string place;
  for (const ShardReference& shard : manifest.shards) {
    struct stat info = {};
    if (stat(JoinPath(DirectoryName(prefix + ".json"), shard.file).c_str(), &info) != 0) info = {};
    absl::StrAppend(&place, info.st_dev, ":", info.st_ino, " ");
  }
  return place;
}

// Of a text that may be long: equal where the texts are.
std::string Digest(std::string_view text) {
  return absl::StrCat(text.size(), ":", absl::Hex(Crc32c(text.data(), text.size())));
}

// The first line that is not in both, as each has it; "nothing" where one has ended.
struct Difference {
  std::string of_first, of_other;
};
Difference FirstDifference(const std::string& first, const std::string& other) {
  const std::vector<std::string> a = absl::StrSplit(first, '\n', absl::SkipEmpty());
  const std::vector<std::string> b = absl::StrSplit(other, '\n', absl::SkipEmpty());
  size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  const auto line = [i](const std::vector<std::string>& lines) {
    return i < lines.size() ? lines[i] : absl::StrCat("no more than ", lines.size(), " files");
  };
  return {line(a), line(b)};
}

}  // namespace

absl::Status CompareCopies(const std::string& field, std::span<const CorpusCopy> copies) {
  HADAL_CHECK(!copies.empty());
  const CorpusCopy& first = copies[0];
  std::vector<RankFacts> ranks;
  std::vector<int> others;
  for (const CorpusCopy& copy : copies) {
    const auto rank = static_cast<int>(ranks.size());
    ranks.push_back({.rank = rank, .host = copy.host});
    if (copy.contents != first.contents) others.push_back(rank);
  }
  if (others.empty()) return absl::OkStatus();
  const auto [of_first, of_other] = FirstDifference(first.contents, copies[static_cast<size_t>(others[0])].contents);
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": ", DescribeRanks(others, ranks), ": another corpus than rank 0's on ", first.host, ": rank ", others[0],
      " has ", of_other, ", rank 0 has ", of_first,
      "; all ranks must train on the same files: copy them from one host, or put them where all hosts see them"));
}

absl::Status AgreeOnCorpus(const std::string& field, const std::string& prefix, const std::string& host,
                           Collectives& collectives, Corpus& corpus) {
  const std::string contents = ContentsOf(corpus.manifest()), place = Digest(PlaceOf(prefix, corpus.manifest()));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> hosts, collectives.AllGather(host, "the ranks' hosts"));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> digests,
                         collectives.AllGather(Digest(contents), "the ranks' corpora"));
  if (std::ranges::any_of(digests, [&](const std::string& digest) { return digest != digests[0]; })) {
    HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> all, collectives.AllGather(contents, "the ranks' corpora"));
    std::vector<CorpusCopy> copies;
    for (size_t rank = 0; rank < all.size(); ++rank) copies.push_back({hosts[rank], all[rank]});
    return AsCommonError(CompareCopies(field, copies));
  }
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> places,
                         collectives.AllGather(place, "the places of the ranks' corpora"));
  bool private_copies = false;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    private_copies = private_copies || (hosts[rank] == host && places[rank] != place);
  }
  absl::Status status;
  if (private_copies) {
    absl::StatusOr<Corpus> whole = Corpus::Open(prefix);
    status = whole.status();
    if (whole.ok()) corpus = *std::move(whole);
  }
  return collectives.AllOk(status, absl::StrCat("reading every byte of ", field));
}

}  // namespace hadal
