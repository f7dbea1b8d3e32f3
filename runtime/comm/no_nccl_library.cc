#include "runtime/comm/nccl_library.h"
#include "runtime/status_macros.h"

namespace hadal {

absl::StatusOr<std::unique_ptr<NcclLibrary>> OpenNccl() {
  return UnavailableError("this build has no NCCL: no nvcc, or no nccl.h, was found when it was configured");
}

}  // namespace hadal
