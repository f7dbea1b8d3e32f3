// The module libhadal_mpi.so (mpi_environment.h): the Communicator of ranks that are MPI processes. Built for Open MPI
// 4.1; uses only MPI 3.0.
//
// Uses a duplicate of MPI_COMM_WORLD that returns errors, so its messages cannot match those of other MPI users in this
// process. MPI buffers small messages (Open MPI: up to about 4 KiB on one host), so their sends complete early; larger
// sends complete after their receive is posted. MPI moves data only inside its own calls, so ranks must call Progress.
// Buffers must be in host memory: Debian's Open MPI cannot read device pointers.
// Errors: a lost connection usually ends the job inside MPI or mpirun before a call can return Unavailable.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/comm/mpi_environment.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

std::string MpiErrorText(int error) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(error, text, &length);
  return std::string(text, length);
}

// Errors that only a wrong call can cause. All others come from the connection or the peer.
bool IsMisuse(int error_class) {
  constexpr int kMisuses[] = {MPI_ERR_TRUNCATE, MPI_ERR_ARG,     MPI_ERR_BUFFER, MPI_ERR_COMM, MPI_ERR_COUNT,
                              MPI_ERR_RANK,     MPI_ERR_REQUEST, MPI_ERR_TAG,    MPI_ERR_TYPE};
  return std::count(std::begin(kMisuses), std::end(kMisuses), error_class) > 0;
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(int rank, int size, MPI_Comm world, MPI_Comm nobody)
      : rank_(rank), size_(size), world_(world), nobody_(nobody) {}

  ~MpiCommunicator() override {
    // After an error the communicator's context id must not be reused: a late message could arrive at the next
    // communicator.
    if (closed_) return;
    MPI_Comm_free(&world_);
    MPI_Comm_free(&nobody_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  absl::StatusOr<CommRequest> Send(const void* data, int64_t bytes, int peer, int tag) override {
    return Post(const_cast<void*>(data), bytes, {.is_send = true, .peer = peer, .tag = tag});
  }
  absl::StatusOr<CommRequest> Receive(void* data, int64_t capacity_bytes, int peer, int tag) override {
    return Post(data, capacity_bytes, {.is_send = false, .peer = peer, .tag = tag});
  }

  absl::StatusOr<bool> Test(CommRequest& request, int64_t* received_bytes) override {
    HADAL_CHECK(request.active());
    HADAL_RETURN_IF_ERROR(CheckOpen());
    Outstanding& outstanding = outstanding_[request.id];
    HADAL_CHECK(outstanding.request != MPI_REQUEST_NULL);

    int done = 0;
    MPI_Status mpi_status;
    if (const int error = MPI_Test(&outstanding.request, &done, &mpi_status); error != MPI_SUCCESS) {
      const absl::Status status = ErrorStatus(error, request, outstanding.bytes);
      TakeBack();
      return status;
    }
    if (!done) return false;
    if (!request.is_send && received_bytes != nullptr) {
      int count = 0;
      MPI_Get_count(&mpi_status, MPI_BYTE, &count);
      *received_bytes = count;
    }
    free_ids_.push_back(request.id);
    request.id = CommRequest::kNone;
    return true;
  }

  void Progress() override {
    if (closed_) return;  // a partly received message must not continue
    // A probe that finds nothing runs MPI's progress engine once, for all requests of the process. On world_ it would
    // find the first unexpected message and from then on make no progress; on nobody_ it never finds one. From any
    // source: if only this rank itself could send, MPICH checks a queue and makes no progress.
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, /*tag=*/0, nobody_, &found, MPI_STATUS_IGNORE);
  }

  // Ends all ranks of the job; mpirun returns `exit_code` if it can. Does not return.
  void Abort(int exit_code) override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);  // Open MPI's MPI_Abort does not return, but the standard allows it
  }

 protected:
  void TakeBack() override {
    if (closed_) return;
    closed_ = true;
    for (Outstanding& outstanding : outstanding_) {
      if (outstanding.request != MPI_REQUEST_NULL && !outstanding.is_send) MPI_Cancel(&outstanding.request);
    }
  }

 private:
  struct Outstanding {
    MPI_Request request = MPI_REQUEST_NULL;
    bool is_send = false;
    int64_t bytes = 0;  // a send's length, a receive's capacity
  };

  absl::StatusOr<CommRequest> Post(void* data, int64_t bytes, CommRequest request) {
    CheckTransfer(bytes, request.peer, request.tag);
    HADAL_RETURN_IF_ERROR(CheckOpen());
    if (bytes > kLongestMessageBytes) {
      return InvalidArgumentError(Describe(request), ": ", bytes, " bytes exceed MPI's limit of ", kLongestMessageBytes,
                                  " bytes per message; use fewer tokens per micro-batch");
    }
    if (free_ids_.empty()) {
      free_ids_.push_back(static_cast<int64_t>(outstanding_.size()));
      outstanding_.emplace_back();
    }
    request.id = free_ids_.back();
    Outstanding& posted = outstanding_[request.id];
    posted.is_send = request.is_send;
    posted.bytes = bytes;
    const int count = static_cast<int>(bytes);
    const int error = request.is_send
                          ? MPI_Isend(data, count, MPI_BYTE, request.peer, request.tag, world_, &posted.request)
                          : MPI_Irecv(data, count, MPI_BYTE, request.peer, request.tag, world_, &posted.request);
    if (error != MPI_SUCCESS) {
      const absl::Status status = ErrorStatus(error, request, bytes);
      TakeBack();
      return status;
    }
    free_ids_.pop_back();
    return request;
  }

  absl::Status CheckOpen() const {
    if (!closed_) return absl::OkStatus();
    return UnavailableError("rank ", rank_, ": communication ended with an earlier error");
  }

  absl::Status ErrorStatus(int mpi_error, const CommRequest& request, int64_t bytes) const {
    int error_class = MPI_ERR_UNKNOWN;
    MPI_Error_class(mpi_error, &error_class);
    if (error_class == MPI_ERR_TRUNCATE) {
      return InternalError(Describe(request), ": a message is longer than the receive of ", bytes,
                           " bytes; sender and receiver disagree on the shape");
    }
    const std::string message =
        absl::StrCat(Describe(request), ", ", bytes, " bytes: MPI says \"", MpiErrorText(mpi_error), "\"");
    return IsMisuse(error_class) ? InternalError(message) : UnavailableError(message);
  }

  const int rank_;
  const int size_;
  MPI_Comm world_;                        // carries all messages
  MPI_Comm nobody_;                       // carries no message; Progress probes it to make MPI progress
  std::vector<Outstanding> outstanding_;  // by CommRequest::id
  std::vector<int64_t> free_ids_;
  bool closed_ = false;
};

class StartedMpi final : public MpiEnvironment {
 public:
  StartedMpi(int rank, int size, absl::Duration end_timeout) : rank_(rank), size_(size), end_timeout_(end_timeout) {}

  ~StartedMpi() override {
    if (!AllRanksReachedTheEnd()) {
      std::fprintf(stderr, "rank %d: not all of %d ranks finished within %s; ending the job\n", rank_, size_,
                   absl::FormatDuration(end_timeout_).c_str());
      std::fflush(stderr);
      MPI_Abort(MPI_COMM_WORLD, 6);  // kExitPeerLost of launch/exit_code.h
    }
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  absl::StatusOr<RankPlacement> FindPlacement() const override {
    RankPlacement placement;
    MPI_Comm host;
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host) != MPI_SUCCESS) {
      return InternalError("rank ", rank_, ": MPI cannot determine which ranks share this host");
    }
    MPI_Comm_rank(host, &placement.local_rank);
    MPI_Comm_size(host, &placement.ranks_on_host);
    cpu_set_t mine;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof(mine), &mine);
    std::vector<cpu_set_t> all(placement.ranks_on_host);
    if (MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, host) != MPI_SUCCESS) {
      return InternalError("rank ", rank_, ": MPI cannot exchange the CPU masks of this host's ranks");
    }
    const auto shares = [&mine](const cpu_set_t& other) {
      cpu_set_t both;
      CPU_AND(&both, &mine, &other);
      return CPU_COUNT(&both) > 0;
    };
    // A mask that could not be read is empty.
    placement.ranks_on_cpus = std::max(1, static_cast<int>(std::count_if(all.begin(), all.end(), shares)));
    MPI_Comm_free(&host);
    return placement;
  }

  absl::StatusOr<std::unique_ptr<Communicator>> NewCommunicator() const override {
    MPI_Comm world, nobody;
    if (MPI_Comm_dup(MPI_COMM_WORLD, &world) != MPI_SUCCESS || MPI_Comm_dup(MPI_COMM_WORLD, &nobody) != MPI_SUCCESS) {
      return InternalError("rank ", rank_, ": MPI cannot duplicate its communicators");
    }
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    return std::make_unique<MpiCommunicator>(rank_, size_, world, nobody);
  }

 private:
  bool AllRanksReachedTheEnd() const {
    MPI_Request barrier;
    if (MPI_Ibarrier(MPI_COMM_WORLD, &barrier) != MPI_SUCCESS) return false;
    const auto start = std::chrono::steady_clock::now();
    while (true) {
      int done = 0;
      if (MPI_Test(&barrier, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
      if (done) return true;
      if (absl::FromChrono(std::chrono::steady_clock::now() - start) >= end_timeout_) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  const int rank_;
  const int size_;
  const absl::Duration end_timeout_;
};

absl::StatusOr<std::unique_ptr<MpiEnvironment>> StartMpi(int* argc, char*** argv, absl::Duration end_timeout) {
  int started = 0;
  MPI_Initialized(&started);
  if (started) return FailedPreconditionError("MPI was started before; a process has one MpiEnvironment");

  // If a process cannot read another's memory (many containers), Open MPI sends a large message in fragments of 32 KiB,
  // at most 3 ahead of the receiver's progress, which is very slow between ranks that sleep and compute. 64 fragments
  // are a whole border message: measured 8 to 12 times as fast. Settings of mpirun and of the user take precedence.
  setenv("OMPI_MCA_pml_ob1_send_pipeline_depth", "64", /*overwrite=*/0);
  // A rank with a GPU starts NCCL's receives before their senders have started. These kernels wait on the GPU; with too
  // few hardware queues another stream that shares a queue with them would wait, too: a deadlock. CUDA reads the
  // setting when it starts, and a CUDA-aware MPI starts CUDA here. A run over NCCL is refused with another value
  // (launch/transport_choice.h).
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  int provided = MPI_THREAD_SINGLE;
  const int error = MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
  if (error != MPI_SUCCESS) return InternalError("MPI_Init_thread failed with error ", error);
  if (provided < MPI_THREAD_FUNNELED) {
    return InternalError("this MPI does not support threads (level ", provided, ", needed ", MPI_THREAD_FUNNELED,
                         "); use an MPI built with thread support");
  }
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return std::make_unique<StartedMpi>(rank, size, end_timeout);
}

std::string MpiVersion() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));  // MPICH's text is pages long
}

}  // namespace
}  // namespace hadal

extern "C" __attribute__((visibility("default")))
const hadal::MpiModule hadal_mpi = {hadal::StartMpi, hadal::MpiVersion};
