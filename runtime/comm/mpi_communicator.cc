#include "runtime/comm/mpi_communicator.h"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int kPeerLostExitCode = 6;

std::string MpiErrorText(int error) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(error, text, &length);
  return std::string(text, length);
}

// Errors that only a wrong call can cause. All others come from the connection or the peer.
bool IsMisuse(int error_class) {
  switch (error_class) {
    case MPI_ERR_TRUNCATE:
    case MPI_ERR_ARG:
    case MPI_ERR_BUFFER:
    case MPI_ERR_COMM:
    case MPI_ERR_COUNT:
    case MPI_ERR_RANK:
    case MPI_ERR_REQUEST:
    case MPI_ERR_TAG:
    case MPI_ERR_TYPE:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<MpiEnvironment>> MpiEnvironment::Start(int* argc, char*** argv,
                                                                      absl::Duration end_timeout) {
  int started = 0;
  MPI_Initialized(&started);
  if (started) return absl::FailedPreconditionError("MPI was started before; a process has one MpiEnvironment");

  // If a process cannot read another's memory (many containers), Open MPI sends a large message in fragments of 32 KiB,
  // at most 3 ahead of the receiver's progress, which is very slow between ranks that sleep and compute. 64 fragments
  // are a whole border message: measured 8 to 12 times as fast. Settings of mpirun and of the user take precedence.
  setenv("OMPI_MCA_pml_ob1_send_pipeline_depth", "64", /*overwrite=*/0);
  // A rank with a GPU starts NCCL's receives before their senders know of them. These kernels wait on the GPU; with too
  // few hardware queues another stream that shares a queue with them would wait, too: a deadlock. CUDA reads the
  // setting when it starts, and a CUDA-aware MPI starts CUDA here. A run over NCCL is refused with another value
  // (launch/transport_choice.h).
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  int provided = MPI_THREAD_SINGLE;
  const int error = MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided);
  if (error != MPI_SUCCESS) return absl::InternalError(absl::StrCat("MPI_Init_thread failed with error ", error));
  if (provided < MPI_THREAD_FUNNELED) {
    return absl::InternalError(absl::StrCat("this MPI does not support threads (level ", provided, ", needed ",
                                            MPI_THREAD_FUNNELED, "); use an MPI built with thread support"));
  }
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return std::unique_ptr<MpiEnvironment>(new MpiEnvironment(rank, size, end_timeout));
}

MpiEnvironment::~MpiEnvironment() {
  if (!AllRanksReachedTheEnd()) {
    std::fprintf(stderr, "rank %d: not all of %d ranks finished within %s; ending the job\n", rank_, size_,
                 absl::FormatDuration(end_timeout_).c_str());
    std::fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, kPeerLostExitCode);
  }
  MPI_Finalize();
}

bool MpiEnvironment::AllRanksReachedTheEnd() const {
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

absl::StatusOr<RankPlacement> MpiEnvironment::FindPlacement() const {
  RankPlacement placement;
  MPI_Comm host;
  if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host) != MPI_SUCCESS) {
    return absl::InternalError(absl::StrCat("rank ", rank_, ": MPI cannot determine which ranks share this host"));
  }
  MPI_Comm_rank(host, &placement.local_rank);
  MPI_Comm_size(host, &placement.ranks_on_host);
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof(mine), &mine);
  std::vector<cpu_set_t> all(placement.ranks_on_host);
  if (MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, host) != MPI_SUCCESS) {
    return absl::InternalError(
        absl::StrCat("rank ", rank_, ": MPI cannot exchange the CPU masks of this host's ranks"));
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

absl::StatusOr<std::unique_ptr<MpiCommunicator>> MpiCommunicator::Create(const MpiEnvironment& environment) {
  MPI_Comm world;
  MPI_Comm nobody;
  if (MPI_Comm_dup(MPI_COMM_WORLD, &world) != MPI_SUCCESS || MPI_Comm_dup(MPI_COMM_WORLD, &nobody) != MPI_SUCCESS) {
    return absl::InternalError(absl::StrCat("rank ", environment.rank(), ": MPI cannot duplicate its communicators"));
  }
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  return std::unique_ptr<MpiCommunicator>(new MpiCommunicator(environment.rank(), environment.size(), world, nobody));
}

MpiCommunicator::~MpiCommunicator() {
  // After an error the communicator's context id must not be reused: a late message could arrive at the next
  // communicator.
  if (closed_) return;
  MPI_Comm_free(&world_);
  MPI_Comm_free(&nobody_);
}

absl::StatusOr<CommRequest> MpiCommunicator::Send(const void* data, int64_t bytes, int peer, int tag) {
  return Post(const_cast<void*>(data), bytes, {.is_send = true, .peer = peer, .tag = tag});
}

absl::StatusOr<CommRequest> MpiCommunicator::Receive(void* data, int64_t capacity_bytes, int peer, int tag) {
  return Post(data, capacity_bytes, {.is_send = false, .peer = peer, .tag = tag});
}

absl::StatusOr<CommRequest> MpiCommunicator::Post(void* data, int64_t bytes, CommRequest request) {
  CheckTransfer(bytes, request.peer, request.tag);
  HADAL_RETURN_IF_ERROR(CheckOpen());
  if (bytes > kLongestMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(request), ": ", bytes, " bytes exceed MPI's limit of ",
                                                   kLongestMessageBytes,
                                                   " bytes per message; use fewer tokens per micro-batch"));
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

absl::StatusOr<bool> MpiCommunicator::Test(CommRequest& request, int64_t* received_bytes) {
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

void MpiCommunicator::Progress() {
  if (closed_) return;  // a partly received message must not continue
  // A probe that finds nothing runs MPI's progress engine once, for all requests of the process. On world_ it would
  // find the first unexpected message and from then on make no progress; on nobody_ it never finds one. From any
  // source: if only this rank itself could send, MPICH checks a queue and makes no progress.
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, /*tag=*/0, nobody_, &found, MPI_STATUS_IGNORE);
}

void MpiCommunicator::Abort(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);  // Open MPI's MPI_Abort does not return, but the standard allows it
}

void MpiCommunicator::TakeBack() {
  if (closed_) return;
  closed_ = true;
  for (Outstanding& outstanding : outstanding_) {
    if (outstanding.request != MPI_REQUEST_NULL && !outstanding.is_send) MPI_Cancel(&outstanding.request);
  }
}

absl::Status MpiCommunicator::CheckOpen() const {
  if (!closed_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("rank ", rank_, ": communication ended with an earlier error"));
}

absl::Status MpiCommunicator::ErrorStatus(int mpi_error, const CommRequest& request, int64_t bytes) const {
  int error_class = MPI_ERR_UNKNOWN;
  MPI_Error_class(mpi_error, &error_class);
  if (error_class == MPI_ERR_TRUNCATE) {
    return absl::InternalError(absl::StrCat(Describe(request), ": a message is longer than the receive of ", bytes,
                                            " bytes; sender and receiver disagree on the shape"));
  }
  const std::string message =
      absl::StrCat(Describe(request), ", ", bytes, " bytes: MPI says \"", MpiErrorText(mpi_error), "\"");
  return IsMisuse(error_class) ? absl::InternalError(message) : absl::UnavailableError(message);
}

}  // namespace hadal
