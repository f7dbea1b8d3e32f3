#include "pipeline/checkpoint/another_checkpoint.h"

#include "absl/strings/str_cat.h"

namespace hadal {

absl::Status AdviseAnotherCheckpoint(const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  return absl::DataLossError(absl::StrCat(
      status.message(),
      "; `hadal checkpoint verify RUN_DIR` reads all checkpoints of a run: give one that it calls ok, or a copy"));
}

}  // namespace hadal
