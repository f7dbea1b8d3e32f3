#include "pipeline/checkpoint/shared_checkpoint.h"

#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "runtime/bytes.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/machine.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// "step 3, its manifest's checksum 0123abcd".
std::string DescribeManifest(const CheckpointManifest& manifest) {
  const std::string text = manifest.ToString();
  return absl::StrCat("step ", manifest.progress.step, ", its manifest's checksum ",
                      absl::Hex(Crc32c(text.data(), text.size()), absl::kZeroPad8));
}

}  // namespace

absl::StatusOr<SharedCheckpoint> ShareCheckpoint(absl::StatusOr<FoundCheckpoint> chosen, int rank,
                                                 Collectives& collectives) {
  absl::StatusOr<std::string> bytes = std::string();
  if (rank == 0 && !chosen.ok()) bytes = chosen.status();
  std::string host = HostName(), manifest;
  if (rank == 0 && chosen.ok()) {
    manifest = chosen->manifest.ToString();
    AppendFields(std::tie(chosen->checkpoint.directory, host, manifest), *bytes);
  }
  HADAL_ASSIGN_OR_RETURN(bytes, collectives.BroadcastResult(bytes, "a checkpoint to load"));
  SharedCheckpoint shared;
  std::string_view in = *bytes;
  HADAL_CHECK(TakeFields(in, std::tie(shared.directory, shared.host, manifest)));
  if (rank == 0) {
    shared.manifest = std::move(chosen->manifest);
  } else if (!shared.directory.empty()) {
    HADAL_ASSIGN_OR_RETURN(shared.manifest, CheckpointManifest::Parse(manifest));
  }
  return shared;
}

absl::Status CompareWithOwn(const SharedCheckpoint& shared, int rank) {
  HADAL_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(shared.directory));
  const std::string own = DescribeManifest(reader.manifest()), first = DescribeManifest(shared.manifest);
  if (own == first) return absl::OkStatus();
  return InvalidArgumentError(shared.directory, ": rank ", rank, " (host ", HostName(),
                              ") has another checkpoint there (", own, ") than rank 0 on ", shared.host, " (", first,
                              "); copy it from one host to all, or put it where all hosts see it");
}

}  // namespace hadal
