#include "tests/torture/damage_rules.h"

#include "absl/strings/match.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"

namespace hadal::torture {
namespace {

bool NothingThere(Damage damage) { return damage == Damage::kMissing || damage == Damage::kDangling; }

Expectation OfCheckpointFile(const std::string& path, Damage damage, Reader reader, int best) {
  const std::string name = BaseName(path), step = BaseName(DirectoryName(path));
  if (reader == Reader::kStart || reader == Reader::kReport) return {{0}};
  const bool read = reader == Reader::kVerify || step == CheckpointName(reader == Reader::kTranslate ? best : kNewest);
  if (!read) return {{0}};
  if (damage == Damage::kUnreadable) return {{1}};
  // While it changes, what is read may be good. Translation leaves the moments unread.
  const bool may_pass = damage == Damage::kChanging ||
                        (reader == Reader::kTranslate && damage == Damage::kFlippedMiddle && name == RankFileName(0));
  if (reader == Reader::kResume) return may_pass ? Expectation{{0}} : Expectation{{0}, "REFUSED"};
  return may_pass ? Expectation{{0, 3}} : Expectation{{3}};
}

Expectation OfCorpus(Kind kind, Damage damage, Reader reader) {
  if (reader != Reader::kStart && reader != Reader::kResume) return {{0}};
  if (damage == Damage::kLink) return {{0}};  // its checksum is right
  if (damage == Damage::kUnreadable) return {{1}};
  if (damage == Damage::kChanging) return {{0, 3}};
  return {{kind == Kind::kCorpusManifest && NothingThere(damage) ? 2 : 3}};
}

Expectation OfMetrics(Damage damage, Reader reader) {
  if (reader != Reader::kReport && reader != Reader::kResume) return {{0}};
  if (damage == Damage::kUnreadable) return {{1}};
  if (damage == Damage::kPipe || damage == Damage::kDirectory || damage == Damage::kDevice) return {{2}};
  const bool link = damage == Damage::kLink || damage == Damage::kDangling;
  if (reader == Reader::kResume) return {{link ? 2 : 0}};
  const bool no_step = NothingThere(damage) || damage == Damage::kEmpty || damage == Damage::kSparse;
  return {{no_step ? 2 : 0}};
}

// Of an owner that has ended nothing is needed, and of a request that was carried out; only what can be neither read
// nor replaced ends a resume.
Expectation OfOwner(const std::string& name, Damage damage, Reader reader) {
  if (reader != Reader::kResume || name != kAttemptName) return {{0}};
  if (damage == Damage::kUnreadable) return {{1}};
  const bool no_file = damage == Damage::kPipe || damage == Damage::kDirectory || damage == Damage::kDevice;
  return {{no_file ? 2 : 0}};
}

}  // namespace

std::optional<Kind> KindOf(const std::string& path) {  // relative to the workplace
  const std::string name = BaseName(path), folder = BaseName(DirectoryName(path));
  if (path == "data/cleaning.json") return Kind::kDerived;
  if (absl::StartsWith(path, "data/")) return absl::EndsWith(name, ".json") ? Kind::kCorpusManifest : Kind::kCorpusFile;
  if (ParseCheckpointName(folder)) return Kind::kCheckpointFile;
  if (folder == kCheckpointsName) {
    if (name == kLatestName || name == kBestName) return Kind::kPointer;
    if (name == kAttemptName || name == kResumeRequestName) return Kind::kOwner;
    return std::nullopt;
  }
  if (name == kDepthProbeName) return Kind::kProbe;
  if (name == kMetricsName) return Kind::kMetrics;
  const bool derived = folder == kLogsName || folder == kTracesName || folder == kTensorBoardName ||
                       name == kResolvedConfigName || absl::StartsWith(name, absl::StrCat(kReportStem, "."));
  return derived ? std::optional(Kind::kDerived) : std::nullopt;
}

Expectation Expected(Kind kind, const std::string& path, Damage damage, Reader reader, int best) {
  switch (kind) {
    case Kind::kCheckpointFile:
      return OfCheckpointFile(path, damage, reader, best);
    case Kind::kPointer:
      return {{0}};
    case Kind::kOwner:
      return OfOwner(BaseName(path), damage, reader);
    case Kind::kDerived:  // what cannot be written ends the command, by name
      return {reader == Reader::kResume || reader == Reader::kReport ? std::set<int>{0, 1, 2} : std::set<int>{0}};
    case Kind::kProbe:
      return reader != Reader::kResume || damage == Damage::kChanging ? Expectation{{0}}
                                                                      : Expectation{{0}, kDepthProbeName};
    case Kind::kMetrics:
      return OfMetrics(damage, reader);
    case Kind::kCorpusManifest:
    case Kind::kCorpusFile:
      return OfCorpus(kind, damage, reader);
  }
  return {};
}

}  // namespace hadal::torture
