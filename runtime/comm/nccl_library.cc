#include "runtime/comm/nccl_library.h"

#include <dlfcn.h>
#include <nccl.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "runtime/status_macros.h"

namespace hadal {
namespace {

static_assert(kNcclSuccess == ncclSuccess && kNcclInvalidUsage == ncclInvalidUsage);
static_assert(kNcclRemoteError == ncclRemoteError && kNcclInProgress == ncclInProgress);
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
// The part of the configuration that every library since 2.18 reads; it takes fields behind it from `size`.
static_assert(offsetof(ncclConfig_t, version) == 12 && offsetof(ncclConfig_t, blocking) == 16);
static_assert(offsetof(ncclConfig_t, maxCTAs) == 28 && offsetof(ncclConfig_t, splitShare) == 40);

struct Functions {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
};

absl::StatusOr<void*> OpenLibrary() {
  const std::string name = "libnccl.so.2";
  const std::string places[] = {name, absl::StrCat("/usr/local/cuda/lib64/", name),
                                absl::StrCat("/usr/local/cuda/lib/", name)};
  std::string errors;
  for (const std::string& place : places) {
    // Never closed: its threads and static objects do not support that.
    if (void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) return handle;
    absl::StrAppend(&errors, errors.empty() ? "" : "; ", dlerror());
  }
  return UnavailableError("NCCL is not found (", errors, "); add the folder of ", name, " to LD_LIBRARY_PATH");
}

absl::StatusOr<Functions> LoadFunctions(void* handle) {
  std::string missing;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) absl::StrAppend(&missing, " ", name);
  };
  Functions functions{};
  load(functions.get_version, "ncclGetVersion");
  load(functions.get_unique_id, "ncclGetUniqueId");
  load(functions.init, "ncclCommInitRankConfig");
  load(functions.async_error, "ncclCommGetAsyncError");
  load(functions.send, "ncclSend");
  load(functions.receive, "ncclRecv");
  load(functions.group_start, "ncclGroupStart");
  load(functions.group_end, "ncclGroupEnd");
  load(functions.finalize, "ncclCommFinalize");
  load(functions.destroy, "ncclCommDestroy");
  load(functions.abort, "ncclCommAbort");
  load(functions.error_string, "ncclGetErrorString");
  load(functions.last_error, "ncclGetLastError");
  if (missing.empty()) return functions;
  return UnavailableError("this NCCL lacks", missing, "; 2.14 and later have them");
}

class OpenedLibrary final : public NcclLibrary {
 public:
  OpenedLibrary(const Functions& functions, int version) : functions_(functions), version_(version) {}

  int Version() const override { return version_; }

  NcclResult GetUniqueId(NcclUniqueId& id) override {
    ncclUniqueId mine;
    const ncclResult_t result = functions_.get_unique_id(&mine);
    std::memcpy(id.data(), &mine, sizeof(mine));
    return result;
  }

  NcclResult CommInit(NcclComm& comm, const NcclUniqueId& id, NcclGroupRank member, int most_blocks) override {
    ncclUniqueId of_all;
    std::memcpy(&of_all, id.data(), sizeof(of_all));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = most_blocks;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    // Else NCCL takes 1 if the group has more than 8 ranks on several hosts, also between two GPUs of one host.
    config.nChannelsPerNetPeer = 4;
#endif
    // The library may write to `comm` after this call, until the initialisation is done.
    return functions_.init(reinterpret_cast<ncclComm_t*>(&comm), member.ranks, of_all, member.rank, &config);
  }

  NcclResult AsyncError(NcclComm comm, NcclResult& error) override {
    ncclResult_t found = ncclSuccess;
    const ncclResult_t result = functions_.async_error(Of(comm), &found);
    error = found;
    return result;
  }

  NcclResult Send(NcclComm comm, const void* data, int64_t bytes, int peer, DeviceQueues::Queue queue) override {
    return functions_.send(data, static_cast<size_t>(bytes), ncclInt8, peer, Of(comm),
                           static_cast<cudaStream_t>(queue));
  }
  NcclResult Receive(NcclComm comm, void* data, int64_t bytes, int peer, DeviceQueues::Queue queue) override {
    return functions_.receive(data, static_cast<size_t>(bytes), ncclInt8, peer, Of(comm),
                              static_cast<cudaStream_t>(queue));
  }

  NcclResult GroupStart() override { return functions_.group_start(); }
  NcclResult GroupEnd() override { return functions_.group_end(); }

  NcclResult Finalize(NcclComm comm) override { return functions_.finalize(Of(comm)); }
  NcclResult Destroy(NcclComm comm) override { return functions_.destroy(Of(comm)); }
  NcclResult Abort(NcclComm comm) override { return functions_.abort(Of(comm)); }

  std::string ErrorText(NcclResult result, NcclComm comm) override {
    const char* const detail = functions_.last_error(Of(comm));
    const char* const text = functions_.error_string(static_cast<ncclResult_t>(result));
    return detail == nullptr || *detail == '\0' ? text : absl::StrCat(text, ": ", detail);
  }

 private:
  static ncclComm_t Of(NcclComm comm) { return static_cast<ncclComm_t>(comm); }

  const Functions functions_;
  const int version_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NcclLibrary>> OpenNccl() {
  HADAL_ASSIGN_OR_RETURN(void* const handle, OpenLibrary());
  HADAL_ASSIGN_OR_RETURN(const Functions functions, LoadFunctions(handle));
  int version = 0;
  if (const ncclResult_t result = functions.get_version(&version); result != ncclSuccess) {
    return UnavailableError("cannot start NCCL: ", functions.error_string(result));
  }
  return std::make_unique<OpenedLibrary>(functions, version);
}

}  // namespace hadal
