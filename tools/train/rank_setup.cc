#include "tools/train/rank_setup.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launch/transport_choice.h"
#include "launch/world.h"
#include "runtime/bytes.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"
#include "tools/config/resolved_config.h"

namespace hadal {
namespace {

template <typename Facts>
auto Fields(Facts& f) {
  return std::tuple_cat(
      std::tie(f.command, f.config_text, f.train.contents, f.train.files, f.validation.contents, f.validation.files,
               f.plan, f.relu_masks, f.sum_groups, f.resume, f.applied_step, f.predecessor),
      DeviceFacts::Fields(f.device));
}

std::string Checksum(uint32_t crc32c) { return absl::StrCat("checksum ", absl::Hex(crc32c, absl::kZeroPad8)); }

std::string Line(const VocabularyReference& vocabulary) {
  return absl::StrCat(vocabulary.file, " (", vocabulary.size, " ids, ", Checksum(vocabulary.crc32c), ")\n");
}

std::string Line(const ShardReference& shard) {
  return absl::StrCat(shard.file, " (", shard.bytes, " bytes, ", shard.samples, " samples, ", Checksum(shard.crc32c),
                      ")\n");
}

// Compares all ranks' records, one kind of difference per method.
class Comparison {
 public:
  explicit Comparison(std::span<const RankSetup> ranks) : ranks_(ranks) {
    for (const RankSetup& facts : ranks) hosts_.push_back(facts.rank.host);
  }

  // Returns the first error of a rank, prefixed with all ranks that have the same error.
  absl::Status OwnErrors() const {
    const auto failed = std::ranges::find_if(ranks_, [](const RankSetup& facts) { return !facts.error.ok(); });
    if (failed == ranks_.end()) return absl::OkStatus();
    const absl::Status& error = failed->error;
    const std::vector<int> which = RanksThat([&](const RankSetup& facts) { return facts.error == error; });
    if (which.size() == ranks_.size()) return error;
    return absl::Status(error.code(), absl::StrCat(DescribeRanks(which, hosts_), ": ", error.message()));
  }

  absl::Status Commands() const {
    const std::vector<int> others = OtherThanFirst([](const RankSetup& facts) { return facts.command; });
    if (others.empty()) return absl::OkStatus();
    return Differ(others, "another command line", ": rank ", others[0], " was started with ", ranks_[others[0]].command,
                  ", rank 0 with ", ranks_[0].command, "; start every rank with the same command");
  }

  absl::Status Configs() const {
    const std::vector<int> others = OtherThanFirst([](const RankSetup& facts) { return facts.config_text; });
    if (others.empty()) return absl::OkStatus();
    config::RunConfig first, other;
    HADAL_RETURN_IF_ERROR(MergeConfigText(ranks_[0].config_text, "rank 0's settings", first));
    HADAL_RETURN_IF_ERROR(MergeConfigText(ranks_[others[0]].config_text, "a rank's settings", other));
    HADAL_ASSIGN_OR_RETURN(const std::vector<ConfigDifference> differences, CompareConfigs(first, other));
    return Differ(others, "other settings", " (rank 0's -> rank ", others[0], "'s):\n", DifferencesText(differences),
                  "Start every rank with the same files and the same --set");
  }

  absl::Status Corpora(const std::string& field, CorpusFacts RankSetup::*corpus) const {
    const std::vector<int> others = OtherThanFirst([&](const RankSetup& facts) { return (facts.*corpus).contents; });
    if (others.empty()) return absl::OkStatus();
    const auto [of_first, of_other] =
        FirstDifference((ranks_[0].*corpus).contents, (ranks_[others[0]].*corpus).contents);
    const absl::Status differ = Differ(
        others, "another corpus", ": rank ", others[0], " has ", of_other, ", rank 0 has ", of_first,
        "; all ranks must train on the same files: copy them from one host, or put them where all hosts see them");
    return absl::Status(differ.code(), absl::StrCat(field, ": ", differ.message()));
  }

  // Returns whether another rank of the same host reads other copies of the corpora.
  bool HasPrivateCopy(const RankSetup& of) const {
    return std::ranges::any_of(ranks_, [&](const RankSetup& facts) {
      return facts.rank.host == of.rank.host &&
             (facts.train.files != of.train.files || facts.validation.files != of.validation.files);
    });
  }

 private:
  template <typename... How>
  absl::Status Differ(const std::vector<int>& others, const char* what, const How&... how) const {
    return InvalidArgumentError(DescribeRanks(others, hosts_), ": ", what, " than rank 0's on ", hosts_[0], how...);
  }
  template <typename Predicate>
  std::vector<int> RanksThat(const Predicate& predicate) const {
    std::vector<int> found;
    for (const RankSetup& facts : ranks_) {
      if (predicate(facts)) found.push_back(facts.rank.rank);
    }
    return found;
  }
  template <typename Value>
  std::vector<int> OtherThanFirst(const Value& value) const {
    return RanksThat([&](const RankSetup& facts) { return value(facts) != value(ranks_[0]); });
  }
  // Returns the first line in which the two texts differ, from each text.
  static std::pair<std::string, std::string> FirstDifference(const std::string& first, const std::string& other) {
    const std::vector<std::string> a = absl::StrSplit(first, '\n', absl::SkipEmpty());
    const std::vector<std::string> b = absl::StrSplit(other, '\n', absl::SkipEmpty());
    size_t i = 0;
    while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
    const auto line = [i](const std::vector<std::string>& lines) {
      return i < lines.size() ? lines[i] : absl::StrCat("no more than ", lines.size(), " files");
    };
    return {line(a), line(b)};
  }

  std::span<const RankSetup> ranks_;
  std::vector<std::string> hosts_;
};

}  // namespace

CorpusFacts FactsOf(const std::string& prefix, const Corpus& corpus) {
  const CorpusManifest& manifest = corpus.manifest();
  // Only what affects training: no statistics and no names of text files.
  CorpusFacts facts{.contents = absl::StrCat(Line(manifest.source_vocabulary), Line(manifest.target_vocabulary))};
  for (const ShardReference& shard : manifest.shards) {
    struct stat info = {};
    if (stat(JoinPath(DirectoryName(prefix + ".json"), shard.file).c_str(), &info) != 0) info = {};
    absl::StrAppend(&facts.contents, Line(shard));
    absl::StrAppend(&facts.files, info.st_dev, ":", info.st_ino, " ");
  }
  return facts;
}

std::string Pack(const RankSetup& facts) {
  std::string bytes;
  AppendList(FactsToJson(facts.rank), bytes);
  AppendValue(facts.error.raw_code(), bytes);
  AppendList(std::string(facts.error.message()), bytes);
  AppendFields(Fields(facts), bytes);
  return bytes;
}

absl::StatusOr<RankSetup> Unpack(std::string_view bytes) {
  std::string json, message;
  if (!TakeList(bytes, json)) return InternalError("a rank sent facts that cannot be read");
  RankSetup facts;
  HADAL_ASSIGN_OR_RETURN(facts.rank, FactsFromJson(json));
  int code = 0;
  if (!TakeValue(bytes, code) || !TakeList(bytes, message) || !TakeFields(bytes, Fields(facts))) {
    return RankSetup{.rank = facts.rank};  // from another version
  }
  facts.error = absl::Status(static_cast<absl::StatusCode>(code), message);
  return facts;
}

absl::StatusOr<CommonSettings> AgreeOnSettings(std::span<const RankSetup> ranks, const RequestedSettings& request) {
  std::vector<RankFacts> rank_facts;
  std::vector<DeviceFacts> devices;
  for (const RankSetup& facts : ranks) {
    rank_facts.push_back(facts.rank);
    devices.push_back(facts.device);
  }
  HADAL_ASSIGN_OR_RETURN(const CommonProgram program, CompareRanks(rank_facts));
  const Comparison comparison(ranks);
  HADAL_RETURN_IF_ERROR(comparison.OwnErrors());
  HADAL_RETURN_IF_ERROR(comparison.Commands());
  HADAL_RETURN_IF_ERROR(comparison.Configs());
  HADAL_RETURN_IF_ERROR(comparison.Corpora("data.train", &RankSetup::train));
  HADAL_RETURN_IF_ERROR(comparison.Corpora("data.validation", &RankSetup::validation));
  HADAL_ASSIGN_OR_RETURN(const DeviceDecision device, DecideDevice(request.device, request.precision, devices));
  HADAL_ASSIGN_OR_RETURN(const TransportDecision transport, DecideTransport(request.transport, device.gpu, devices));
  CommonSettings common{.instruction_sets = program.instruction_sets,
                        .gpu = device.gpu,
                        .compute_storage = device.compute_storage,
                        .nccl = transport.nccl};
  for (const RankSetup& facts : ranks) common.reads_all.push_back(comparison.HasPrivateCopy(facts));
  for (const std::string& notice : {program.notice, device.notice, transport.notice}) {
    if (!notice.empty()) common.notices.push_back(notice);
  }
  return common;
}

}  // namespace hadal
