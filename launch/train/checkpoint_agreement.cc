#include "launch/train/checkpoint_agreement.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "runtime/crc32c.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// What is compared: people read it, too.
absl::StatusOr<std::string> Describe(const std::string& directory) {
  HADAL_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(directory));
  const std::string manifest = reader.manifest().ToString();
  return absl::StrCat("step ", reader.manifest().progress.step, ", its manifest's checksum ",
                      absl::Hex(Crc32c(manifest.data(), manifest.size()), absl::kZeroPad8));
}

}  // namespace

absl::Status AgreeOnCheckpoint(const std::string& directory, const std::string& host, Collectives& collectives) {
  const absl::StatusOr<std::string> mine = Describe(directory);
  HADAL_RETURN_IF_ERROR(collectives.AllOk(mine.status(), "opening the checkpoint"));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> all, collectives.AllGather(*mine, "the ranks' checkpoints"));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> hosts, collectives.AllGather(host, "the ranks' hosts"));
  for (size_t other = 1; other < all.size(); ++other) {
    if (all[other] == all[0]) continue;
    return AsCommonError(absl::InvalidArgumentError(
        absl::StrCat(directory, ": rank ", other, " (host ", hosts[other], ") has another checkpoint there (",
                     all[other], ") than rank 0 on ", hosts[0], " (", all[0],
                     "); copy it from one host to all, or put it where all hosts see it")));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> BroadcastCheckpoint(const std::string& path, const std::string& host, int rank,
                                                Collectives& collectives) {
  std::string directory;
  absl::Status found;
  if (rank == 0) {
    const absl::StatusOr<ModelCheckpoint> checkpoint = ModelCheckpoint::Open(path);
    found = checkpoint.status();
    if (checkpoint.ok()) directory = checkpoint->directory();
  }
  HADAL_RETURN_IF_ERROR(collectives.AllOk(found, "looking for the checkpoint"));
  HADAL_RETURN_IF_ERROR(collectives.Broadcast(directory, 0, "the checkpoint's directory"));
  HADAL_RETURN_IF_ERROR(AgreeOnCheckpoint(directory, host, collectives));
  return directory;
}

}  // namespace hadal
